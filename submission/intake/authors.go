package intake

import "example.org/mta/internal/envelope"

// authors gives the addresses in a header section's From field. It reports false where readers could
// disagree about them: there is not exactly one such field, or it can't be read in full.
func authors(header []byte) (all []envelope.Address, ok bool) {
	parsed, err := envelope.From(header)
	if err != nil {
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
