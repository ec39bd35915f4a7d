package simulate

import "testing"

// TestDemandOfADay: each shape has the whole day's mail, in its hours.
func TestDemandOfADay(t *testing.T) {
	for shape, hours := range map[string][2]int64{"even": {0, 24}, "office": {8, 18}, "campaign": {10, 11}} {
		trace, err := Demand(20_000, shape, 2)
		if err != nil {
			t.Fatal(err)
		}
		var days [2]float64
		for _, e := range trace[:len(trace)-1] {
			days[e.T/86_400] += e.Value
			if h := e.T % 86_400 / 3600; h < hours[0] || h >= hours[1] {
				t.Errorf("%s: mail at %d o'clock", shape, h)
			}
		}
		if days != [2]float64{20_000, 20_000} || trace[len(trace)-1] != (Event{T: 2 * 86_400, Kind: End}) {
			t.Errorf("%s: %v, then %+v", shape, days, trace[len(trace)-1])
		}
	}
	for _, bad := range []struct {
		n     int64
		shape string
	}{{0, "even"}, {1, "wavy"}} {
		if _, err := Demand(bad.n, bad.shape, 1); !IsInputError(err) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestNoPointIsAboveItsRows: a point of the picture covers whole intervals, so that it shows no rate
// that no row has.
func TestNoPointIsAboveItsRows(t *testing.T) {
	var rows []Row
	for at := int64(0); at < 100*3600; at += 3600 { // 300 points would have 20 minutes each
		rows = append(rows, Row{T: at, Provider: all, CapHour: 100, Counts: Counts{Sent: 100, Diverted: 7}})
	}
	rows = append(rows, Row{T: 701 * 3600, Provider: all, CapHour: 100, Counts: Counts{Sent: 100}})
	p := Picture{Rows: rows, Interval: 3600}
	upper, lower, width, _ := p.lines()
	sent, diverted := upper[1].Points, lower[0].Points
	if width%3600 != 0 {
		t.Errorf("a point is %d s", width)
	}
	for i, v := range sent {
		if v.Value > 100 || diverted[i].Value > 7 {
			t.Errorf("point %d: %v sent an hour, %v diverted", i, v.Value, diverted[i].Value)
		}
	}
}
