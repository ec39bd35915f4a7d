package intake

import (
	"bytes"

	"example.org/mta/internal/envelope"
)

// authors gives the addresses in a header section's From field. It reports false where readers could
// disagree about them: there is not exactly one such field, or it can't be read in full.
func authors(header []byte) (all []envelope.Address, ok bool) {
	value, fields := fieldValue(header, "From")
	if fields != 1 {
		return nil, false
	}
	parsed, err := envelope.ParseList(value)
	if err != nil || len(parsed) == 0 {
		return nil, false
	}
	for _, p := range parsed {
		a, err := envelope.ParseAddress(p)
		if err != nil || a.Null() {
			return nil, false
		}
		all = append(all, a)
	}
	return all, true
}

// fieldValue gives the unfolded value of a field, and how many of that name there are. The last one's
// value counts.
func fieldValue(header []byte, name string) (value string, fields int) {
	var unfolded []byte
	within := false
	for line := range bytes.Lines(header) {
		if line[0] == ' ' || line[0] == '\t' {
			if within {
				unfolded = append(unfolded, bytes.TrimRight(line, "\r\n")...)
			}
			continue
		}
		n, v, isField := cutField(line)
		if within = isField && bytes.EqualFold(n, []byte(name)); within {
			fields++
			unfolded = append(unfolded[:0], bytes.TrimRight(v, "\r\n")...)
		}
	}
	return string(unfolded), fields
}
