package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdmissionSimulate(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "a.svg")
	trace := "t,event,value\n0,capacity,100\n0,rps,200\n20,end,\n"
	simulate := func(trace string, args ...string) (out, errs string, code int) {
		var o, e bytes.Buffer
		c := &cli{in: strings.NewReader(trace), out: &o, err: &e, env: func(string) string { return "" }}
		code = run(c, append([]string{"mta", "admission", "simulate", "--trace", "-"}, args...))
		return o.String(), e.String(), code
	}
	out, errs, code := simulate(trace, "--plot", plot, "--by-tier")
	if code != exitDone || strings.Count(out, "\n") != 41 || errs != "" {
		t.Errorf("exit code %d, %d lines, %s", code, strings.Count(out, "\n"), errs)
	}
	if svg, err := os.ReadFile(plot); err != nil || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
		t.Errorf("plot: %v, %.80s", err, svg)
	}
	for _, bad := range [][]string{
		{"t,event,value\n0,rps,x\n", `mta: trace, line 2: value of rps is "x", want a number from 0 to 1e+06`},
		{trace, "mta: options: mode best is not known; there are utilisation, pid, codel and none", "--mode", "best"},
		{trace, "mta: options: timeout is 0s, want more than 0", "--timeout", "0"},
		{trace, "mta: trace: open /none.csv: no such file or directory", "--trace", "/none.csv"},
	} {
		if _, errs, code := simulate(bad[0], bad[2:]...); code != exitUsage || strings.TrimSpace(errs) != bad[1] {
			t.Errorf("%v: exit code %d, %s", bad[2:], code, errs)
		}
	}
}
