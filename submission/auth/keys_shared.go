package auth

import (
	"cmp"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"example.org/mta/submission/shared"
)

// SharedKeys are API keys that the nodes of a cluster share, by their sums: see shared.Store.
type SharedKeys = shared.Store[KeySum, Key]

// KeyEntries are API keys.
var KeyEntries = &shared.Entries[KeySum, Key]{
	Kind: "key", What: "API keys", File: "keys file", Command: "mta key",
	ID:    func(k *Key) KeySum { return k.Sum },
	Name:  func(sum KeySum) string { return hex.EncodeToString(sum[:]) },
	Parse: parseKeySum,
	Show:  func(name string) string { return name[:min(len(name), idSize)] },
	Entry: func(_ KeySum, known shared.Line) (*Key, error) { return parseKey(known.Line) },
	Text:  (*Key).String,
	End:   func(k *Key) time.Time { return k.Expires },
	Sort: func(all, _ []*Key) {
		slices.SortFunc(all, func(a, b *Key) int {
			return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID(), b.ID()))
		})
	},
	Change: func(was shared.Line, k *Key, filed bool) shared.Line {
		switch {
		case k == nil:
			return shared.Line{}
		case filed && endsBefore(was.Dropped, k.Expires):
			return shared.Line{Line: was.Dropped} // the file doesn't have the end that a command has given it
		}
		return shared.Line{Line: k.String()}
	},
}

func parseKeySum(name string) (sum KeySum, err error) {
	text, err := hex.DecodeString(name)
	if err != nil || len(text) != len(sum) {
		return sum, errors.New("want the SHA-256 of a token as its key")
	}
	return KeySum(text), nil
}

// endsBefore reports whether the key of a dropped line has an earlier end; zero: none.
func endsBefore(dropped string, end time.Time) bool {
	if strings.TrimSpace(dropped) == "" {
		return false
	}
	old, err := parseKey(dropped)
	return err == nil && !old.Expires.IsZero() && (end.IsZero() || old.Expires.Before(end))
}
