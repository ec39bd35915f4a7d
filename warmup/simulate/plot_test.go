package simulate

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// As package plot has them.
const (
	plotWidth, plotLeft, plotRight = 900, 70, 20
	panelTop, panelHeight          = 40, 190
)

// drawn gives the texts of a picture, and the points of each line.
func drawn(t *testing.T, p *Picture) (texts []string, lines [][][2]float64) {
	t.Helper()
	var b bytes.Buffer
	if err := Plot(p, &b); err != nil {
		t.Fatal(err)
	}
	in := false
	for d := xml.NewDecoder(&b); ; {
		tok, err := d.Token()
		if err == io.EOF {
			return texts, lines
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			in = x.Name.Local == "text"
			for _, a := range x.Attr {
				if a.Name.Local != "points" {
					continue
				}
				var line [][2]float64
				for _, pair := range strings.Fields(a.Value) {
					var at [2]float64
					if _, err := fmt.Sscanf(pair, "%f,%f", &at[0], &at[1]); err != nil {
						t.Fatal(err)
					}
					line = append(line, at)
				}
				lines = append(lines, line)
			}
		case xml.EndElement:
			in = false
		case xml.CharData:
			if in {
				texts = append(texts, string(x))
			}
		}
	}
}

// TestPictureOfDays: a picture of days has their dates, what each did to the stage, and a scale on which the
// first ten days can be seen beside the last.
func TestPictureOfDays(t *testing.T) {
	p, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	var trace []Event
	for at := int64(0); at < 14*86_400; at += 60 {
		n := 40 + at*at/(14*86_400)/(14*86_400/200) // more each day
		if day := at / 86_400; day != 5 {
			trace = append(trace, Event{T: at, Kind: Offer, Value: float64(n)})
		}
	}
	trace = append(trace, Event{T: 14 * 86_400, Kind: End})
	pic := &Picture{Title: "two weeks", Interval: 3600, Begin: time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC)}
	rows, history := simulated(t, p, trace, Options{Interval: 3600})
	pic.Rows, pic.History = rows, *history
	if len(pic.Days) != 14 || pic.Before != 0 {
		t.Fatalf("%d days after %d", len(pic.Days), pic.Before)
	}
	texts, lines := drawn(t, pic)
	all := strings.Join(texts, "\n")
	for _, want := range []string{"two weeks", "Wed 25 Nov", "Tue 1 Dec", "1: advanced", "6: stayed: daily cap not filled", "6: advanced", "10000", "diverted", "waiting"} {
		if !strings.Contains(all, want) {
			t.Errorf("the picture doesn't say %q:\n%s", want, all)
		}
	}
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	bottom := float64(panelTop + panelHeight)
	for day := range 10 {
		highest := bottom
		for _, at := range lines[1] { // what was sent
			if x := (at[0] - plotLeft) / (plotWidth - plotLeft - plotRight) * 14; x >= float64(day) && x < float64(day+1) {
				highest = min(highest, at[1])
			}
		}
		if seen := bottom - highest; day != 5 && seen < panelHeight/10 || seen > panelHeight {
			t.Errorf("day %d is %.0f pixels of %d high", day+1, seen, panelHeight)
		}
	}
}
