package simulate

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Row is a row of Run's output.
type Row struct {
	T          int64  `json:"t"` // when the interval begins, in seconds
	Stage      int64  `json:"stage"`
	Provider   string `json:"provider"`
	State      string `json:"state"` // normal, paused or store_down
	CapHour    int64  `json:"cap_hour"`
	CapDay     int64  `json:"cap_day"`
	Offered    int64  `json:"offered"`
	Sent       int64  `json:"sent"`
	Diverted   int64  `json:"diverted"`
	Held       int64  `json:"held"` // at the interval's end
	Deferred   int64  `json:"deferred"`
	Bounced    int64  `json:"bounced"`
	Complained int64  `json:"complained"`
}

// ReadRows reads what Run has written.
func ReadRows(r io.Reader) ([]Row, error) {
	in := bufio.NewScanner(r)
	if !in.Scan() || in.Text() != Header {
		return nil, fmt.Errorf("reading simulation: it does not begin with %q", Header)
	}
	var rows []Row
	for in.Scan() {
		f := strings.Split(in.Text(), ",")
		if len(f) != 13 {
			return nil, fmt.Errorf("reading simulation: row %d has %d fields", len(rows)+1, len(f))
		}
		row := Row{Provider: f[2], State: f[3]}
		for i, at := range []*int64{&row.T, &row.Stage, nil, nil, &row.CapHour, &row.CapDay, &row.Offered, &row.Sent,
			&row.Diverted, &row.Held, &row.Deferred, &row.Bounced, &row.Complained} {
			if at == nil {
				continue
			}
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("reading simulation: row %d: %w", len(rows)+1, err)
			}
			*at = n
		}
		rows = append(rows, row)
	}
	return rows, in.Err()
}
