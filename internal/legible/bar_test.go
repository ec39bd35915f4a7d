package legible

import (
	"testing"
	"unicode/utf8"
)

func TestBarIsAsLongAsItsShare(t *testing.T) {
	for _, tc := range []struct {
		n, of      int64
		done, left string
	}{
		{0, 10, "", "····"},
		{5, 10, "██", "··"},
		{1, 32, "▏", "···"},
		{31, 32, "███▉", ""},
		{10, 10, "████", ""},
		{11, 10, "████", ""},
		{0, 0, "", "····"},
	} {
		done, left := Bar(tc.n, tc.of, 4)
		if done != tc.done || left != tc.left {
			t.Errorf("Bar(%d, %d) is %q and %q, want %q and %q", tc.n, tc.of, done, left, tc.done, tc.left)
		}
		if n := utf8.RuneCountInString(done + left); n != 4 {
			t.Errorf("Bar(%d, %d) has %d columns, want 4", tc.n, tc.of, n)
		}
	}
}
