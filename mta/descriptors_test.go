package mta

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"example.org/mta/mta/config"
)

func TestDescriptorsAreKeptForFiles(t *testing.T) {
	cfg := func(in, out int) *config.Config {
		c := config.Default()
		c.Listeners[0].MaxConnections, c.Delivery.MaxConnections = in, out
		return c
	}
	for _, c := range []struct{ limit, in, out, wantIn, wantOut int }{
		{1 << 20, 10_000, 1000, 0, 0},
		{524_288, 10_000, 1000, 0, 0},
		{1024, 10_000, 1000, 699, 69},
		{1024, 300, 300, 0, 0},
		{4096, 2000, 2000, 1728, 1728},
		{64, 10_000, 1000, 1, 1},
	} {
		d := shareDescriptors(c.limit, cfg(c.in, c.out))
		if d.in != c.wantIn || d.out != c.wantOut {
			t.Errorf("%d files, %d and %d connections: %d and %d, want %d and %d", c.limit, c.in, c.out, d.in, d.out, c.wantIn, c.wantOut)
		}
		if d.in > 1 && d.in+d.out+keptFiles(c.limit) > c.limit {
			t.Errorf("%d files: %d and %d connections leave none for files", c.limit, d.in, d.out)
		}
		if n := d.of(cfg(c.in, c.out).Listeners[0].MaxConnections); n != max(c.wantIn, 1) && n != c.in {
			t.Errorf("%d files: the only listener has %d of %d", c.limit, n, c.wantIn)
		}
		var out bytes.Buffer
		d.warn(slog.New(slog.NewTextHandler(&out, nil)))
		if warned := strings.Contains(out.String(), "LimitNOFILE="); warned != (c.wantIn > 0) {
			t.Errorf("%d files: warned %v: %s", c.limit, warned, out.String())
		}
	}
}
