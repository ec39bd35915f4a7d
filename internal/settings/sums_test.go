package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSumsOfMany(t *testing.T) {
	many := func(n int) map[string]string {
		sums := make(map[string]string)
		for i := range n {
			sums[fmt.Sprintf("tenant %q", fmt.Sprint(i))] = fmt.Sprint(i)
		}
		return sums
	}
	if got := Few("tenants", many(mostSums)); len(got) != mostSums {
		t.Errorf("%d sums", len(got))
	}
	one, other := Few("tenants", many(mostSums+1)), many(mostSums+1)
	other[`tenant "3"`] = "another"
	if other = Few("tenants", other); len(one) != 1 || one["tenants"] == "" || one["tenants"] == other["tenants"] {
		t.Errorf("of many blocks: %q and %q", one, other)
	}
	if got := Few("tenants", map[string]string{strings.Repeat("x", longest+1): "1"}); len(got) != 1 || got["tenants"] == "" {
		t.Errorf("of a long name: %q", got)
	}
}

func TestSumsThatDiffer(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"=1 x=1", "=1 x=1", ""}, {"=1 x=1", "=2 x=1", "the settings outside of blocks"}, {"=1 x=1 y=1", "=1 x=2 z=1", "x, y, z"},
		{"=1 x=~1 z=~1", "=1 y=~1 z=~2", "z"}, {"=1 the#order#of#blocks=1", "=1 the#order#of#blocks=2", "the order of blocks"},
		{"=1 x=1 the#order#of#blocks=1", "=1 the#order#of#blocks=2", "x"}, {"", "=1", "?"}, {"=1", "x=1", "?"},
	} {
		read := func(text string) map[string]string {
			sums := make(map[string]string)
			for _, field := range strings.Fields(text) {
				name, sum, _ := strings.Cut(strings.ReplaceAll(field, "#", " "), "=")
				sums[name] = sum
			}
			return sums
		}
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			names, known := Differing(read(pair[0]), read(pair[1]))
			if got := strings.Join(names, ", "); known != (c.want != "?") || known && got != c.want {
				t.Errorf("%q: %q, known: %v; want %q", pair, got, known, c.want)
			}
		}
	}
}

// TestSumsOfSome: programs that have other blocks of a kind give sums of the same ones, of those that both have.
func TestSumsOfSome(t *testing.T) {
	named := func(from, to int) map[string]string {
		var s summing
		for i := from; i < to; i++ {
			s.few = append(s.few, part{fmt.Sprintf("source %q", fmt.Sprint(i)), "~1"})
		}
		slices.Reverse(s.few)
		return s.some()
	}
	a, b := named(0, 100), named(20, 120)
	both := 0
	for name := range a {
		if b[name] != "" {
			both++
		}
	}
	if len(a) != someSums || len(b) != someSums || both < 30 {
		t.Errorf("%d and %d sums, %d of both", len(a), len(b), both)
	}
}
