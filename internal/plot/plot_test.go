package plot_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"example.org/mta/internal/plot"
)

// TestDrawKeepsItsScale: the largest value is inside the panel on either scale, words are escaped, and the picture
// is as high as what is below its panels.
func TestDrawKeepsItsScale(t *testing.T) {
	for _, log := range []bool{false, true} {
		p := &plot.Picture{Title: "a < b & c", End: 2, Label: "stage", Words: []plot.Word{{At: 1, Size: 9, Text: "<held>", Colour: "#666"}},
			Ticks:  []plot.Tick{{At: 1, Text: "Mon 2 Jan", Line: true}},
			Panels: []plot.Panel{{Unit: "an hour", Least: 1, Log: log, Lines: []plot.Line{{Name: "sent", Colour: "#000", Points: []plot.Point{{0, 0}, {2, 5000}}}}}}}
		var b bytes.Buffer
		if err := plot.Draw(p, &b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"a &lt; b &amp; c", "&lt;held&gt;", ">stage<", "Mon 2 Jan", `points="70.0,230.0 880.0,`} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("log %v: the picture has no %q:\n%s", log, want, &b)
			}
		}
		_, rest, _ := strings.Cut(b.String(), "880.0,")
		if y, _, _ := strings.Cut(rest, `"`); y < "40.0" || len(y) > 4 {
			t.Errorf("log %v: the largest value is at %s, above the panel", log, y)
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}
