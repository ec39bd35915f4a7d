package settings

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Limits of Sums.
const (
	mostSums = 20  // of a kind of blocks; of more there is one of all together
	someSums = 64  // of a kind that each program may have others of; of more there are those of the least sums of names
	longest  = 100 // octets of a name that has a sum of its own
)

const ordering = "the order of blocks" // the name of its sum

// Some is before the sum of what only programs that both have it compare.
const Some = "~"

// Sums are sums of what two programs with one file should have in common, by the names of its blocks, such as
// `provider "big"`; "" has the settings outside of blocks. There are a few hundred at most. What is marked node:"own" is
// left out, and settings for which left returns true; a block that is marked node:"some" has a sum of its own, wherever
// it is, for programs that both have it; the order of blocks that are marked node:"order" counts. Blocks of presets
// alone are left out. Secrets count as set or not, so that nobody can guess one by its sum.
func Sums(root any, left func(setting any) bool) map[string]string {
	s := summing{all: make(map[string]map[string]string), left: left}
	v := reflect.ValueOf(root).Elem()
	top, order := sha256.New(), sha256.New()
	s.body(top, order, v, BlockOf(v), "", "")
	out := map[string]string{"": text(top), ordering: text(order)}
	for kind, sums := range s.all {
		maps.Copy(out, Few(kind+" blocks", sums))
	}
	maps.Copy(out, s.some())
	return out
}

// Differing names what two programs have otherwise, in order, by their sums. It returns nil and false if these are not
// known of one of the two.
func Differing(a, b map[string]string) (names []string, known bool) {
	if a[""] == "" || b[""] == "" {
		return nil, false
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	names = []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one, other := a[name], b[name]
		lacks := (one == "" || other == "") && strings.HasPrefix(one+other, Some)
		if one != other && !lacks {
			names = append(names, cmp.Or(name, "the settings outside of blocks"))
		}
	}
	if len(names) > 1 { // it differs anyway where one lacks a block
		names = slices.DeleteFunc(names, func(name string) bool { return name == ordering })
	}
	return names, true
}

// Few returns sums by name, or, if these are many or long, one of them all under a name that they have together.
func Few(together string, sums map[string]string) map[string]string {
	short := func(name string) bool { return len(name) <= longest }
	names := slices.Sorted(maps.Keys(sums))
	if len(names) <= mostSums && !slices.ContainsFunc(names, func(n string) bool { return !short(n) }) {
		return sums
	}
	all := sha256.New()
	for _, name := range names {
		fmt.Fprintf(all, "%q %s\n", name, sums[name])
	}
	return map[string]string{together: text(all)}
}

// text is a sum in short: it meets an operator's eye alone, and no attacker's.
func text(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:6]) }

type summing struct {
	all  map[string]map[string]string // by kind of blocks at the top, and name
	few  []part                       // of blocks that not all programs have
	left func(setting any) bool
}

// part is the sum of a block.
type part struct{ name, sum string }

// body adds what is in a block to a sum, under a path; of the top of the file, "", blocks have sums of their own.
func (s *summing) body(sum, order hash.Hash, v reflect.Value, b *Block, path, prefix string) {
	for f := range Fields(v) {
		mark := f.Tag.Get("node")
		switch {
		case mark == "own":
		case f.Kind == Setting:
			name := prefix + f.Name
			if (!b.sparse || b.Set(name)) && !s.left(f.Value.Addr().Interface()) {
				fmt.Fprintf(sum, "%s%s = %s\n", path, name, Literal(f.Value, ""))
			}
		case f.Kind == Single:
			inner, sub := BlockOf(f.Value), ""
			if inner == nil {
				inner, sub = b, prefix+f.Name+"."
			}
			if in := sum; path == "" && sub == "" {
				in = sha256.New()
				s.body(in, order, f.Value, inner, f.Name+": ", sub)
				s.put(f.Name, f.Name, in)
			} else {
				s.body(in, order, f.Value, inner, path, sub)
			}
		case f.Kind == Many:
			for i := range f.Value.Len() {
				s.block(sum, order, f, i, path)
			}
		}
	}
}

// block adds the i-th block of a field.
func (s *summing) block(sum, order hash.Hash, f Field, i int, path string) {
	v := f.Value.Index(i).Elem()
	b, name := BlockOf(v), nameOf(f, i)
	if len(b.at) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(b.at)), b.Sets) {
		return
	}
	in, mark := sum, f.Tag.Get("node")
	if own := mark == "some" || path == ""; own {
		in = sha256.New()
	}
	fmt.Fprintf(in, "%s%s\n", path, name)
	s.body(in, order, v, b, path+name+": ", "")
	switch {
	case mark == "some":
		s.few = append(s.few, part{path + name, Some + text(in)})
	case path == "":
		s.put(f.Name, name, in)
	}
	if mark == "order" {
		fmt.Fprintf(order, "%s\n", name)
	}
}

func (s *summing) put(kind, name string, sum hash.Hash) {
	if s.all[kind] == nil {
		s.all[kind] = make(map[string]string)
	}
	s.all[kind][name] = text(sum)
}

// some are the sums of the blocks that not all programs have, the same ones at programs that have the same blocks.
func (s *summing) some() map[string]string {
	by := make(map[string]string)
	place := func(n part) string {
		h := sha256.Sum256([]byte(n.name))
		return string(h[:])
	}
	slices.SortFunc(s.few, func(a, b part) int { return cmp.Compare(place(a), place(b)) })
	for _, n := range s.few[:min(len(s.few), someSums)] {
		if len(n.name) <= longest {
			by[n.name] = n.sum
		}
	}
	return by
}
