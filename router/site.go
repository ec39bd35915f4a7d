package router

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// maxSite bounds the length of a site's name: it stands in logs, metrics, tables and keys.
const maxSite = 120

// siteName names a set of exchangers, in the manner of KumoMTA's rollup: what the names share
// stands once, what differs in parentheses:
//
//	(alt1|alt2|alt3|alt4|).gmail-smtp-in.l.google.com
//	(alt1|alt2|).aspmx.l.google.com,(aspmx2|aspmx3).googlemail.com
//
// Two sets have the same name only if they are the same: the name can be expanded again. Names
// are grouped by their last two labels, so that nothing is factored but what belongs together.
// The preferences are not part of it: two domains that rank the same machines differently are
// still served by the same machines and share one budget.
func siteName(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	groups := make(map[string][][]string)
	var order []string
	for _, n := range names {
		labels := strings.Split(n, ".")
		key := strings.Join(labels[max(0, len(labels)-2):], ".")
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], labels)
	}
	slices.Sort(order)
	parts := make([]string, len(order))
	for i, key := range order {
		parts[i] = factor(groups[key])
	}
	return bounded(strings.Join(parts, ","))
}

// factor writes distinct names, given as labels, as one expression.
func factor(names [][]string) string {
	if len(names) == 1 {
		return strings.Join(names[0], ".")
	}
	shared := sharedLabels(names)
	first := names[0]
	suffix := strings.Join(first[len(first)-shared:], ".")
	branches := make(map[string][][]string) // by the label before the shared ones
	whole := false                          // the shared part is itself one of the names
	for _, n := range names {
		n = n[:len(n)-shared]
		if len(n) == 0 {
			whole = true
			continue
		}
		last := n[len(n)-1]
		branches[last] = append(branches[last], n)
	}
	alternatives := make([]string, 0, len(branches)+1)
	for _, b := range branches {
		alternatives = append(alternatives, factor(b))
	}
	slices.Sort(alternatives)
	if whole {
		alternatives = append(alternatives, "")
	}
	out := "(" + strings.Join(alternatives, "|") + ")"
	if suffix != "" {
		out += "." + suffix
	}
	return out
}

// sharedLabels counts the last labels that all names have.
func sharedLabels(names [][]string) int {
	first := names[0]
	shared := len(first)
	for _, n := range names[1:] {
		k := 0
		for k < shared && k < len(n) && n[len(n)-1-k] == first[len(first)-1-k] {
			k++
		}
		shared = k
	}
	return shared
}

// bounded cuts a long name; a hash of the whole then distinguishes it from others with the same start.
func bounded(name string) string {
	if len(name) <= maxSite {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "~" + hex.EncodeToString(sum[:8])
	return name[:maxSite-len(hash)] + hash
}
