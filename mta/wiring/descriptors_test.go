package wiring

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"example.org/mta/mta/config"
)

func TestDescriptorsAreKeptForFiles(t *testing.T) {
	const asIs = 1 << 30
	for _, c := range []struct{ limit, small, in, out, most int }{
		{1 << 20, 40, 10_000, 1000, asIs},
		{524_288, 40, 10_000, 1000, asIs},
		{1024, 40, 10_000, 1000, 364},
		{1024, 40, 10_000, 100, 628},
		{1024, 40, 300, 300, asIs},
		{4096, 40, 2000, 2000, 1708},
		{64, 40, 10_000, 1000, 1},
	} {
		cfg := config.Default()
		second := *cfg.Listeners[0]
		cfg.Listeners = append(cfg.Listeners, &second)
		second.Name, second.MaxConnections = "small", c.small
		cfg.Listeners[0].MaxConnections, cfg.Delivery.MaxConnections = c.in, c.out
		d := ShareDescriptors(c.limit, cfg)
		all := keptFiles(c.limit)
		for _, configured := range []int{c.small, c.in, c.out} {
			if n := d.Of(configured); n != min(configured, c.most) {
				t.Errorf("%d files: %d connections of %d, want %d", c.limit, n, configured, min(configured, c.most))
			}
			all += d.Of(configured)
		}
		if c.most > 1 && all > c.limit {
			t.Errorf("%d files: %d are needed", c.limit, all)
		}
		var out bytes.Buffer
		d.Warn(slog.New(slog.NewTextHandler(&out, nil)), cfg)
		if warned := strings.Contains(out.String(), "LimitNOFILE="); warned != (c.most < asIs) {
			t.Errorf("%d files: warned %v: %s", c.limit, warned, out.String())
		}
		if c.limit == 1024 && c.out == 1000 && !strings.Contains(out.String(), `in_force="listener smtp 364 of 10000, delivery 364 of 1000"`) {
			t.Errorf("the warning lacks what is in force: %s", &out)
		}
		if got := d.TakenFromDelivery(cfg); (got != "") != (c.most < c.out) {
			t.Errorf("%d files for %d in and %d out: %q", c.limit, c.in, c.out, got)
		}
	}
}
