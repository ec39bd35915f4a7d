package auth

import (
	"cmp"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"
)

// SharedKeys are API keys that the nodes of a cluster share, by their sums: see Shared.
type SharedKeys = Shared[KeySum, Key]

// KeyEntries are API keys.
var KeyEntries = &Entries[KeySum, Key]{
	Kind: "key", what: "API keys", file: "keys file", command: "mta key", shown: idSize,
	id:    func(k *Key) KeySum { return k.Sum },
	name:  func(sum KeySum) string { return hex.EncodeToString(sum[:]) },
	parse: parseKeySum,
	entry: func(known sharedLine) (*Key, error) { return parseKey(known.Line) },
	text:  (*Key).String,
	end:   func(k *Key) time.Time { return k.Expires },
	sorted: func(all, _ []*Key) {
		slices.SortFunc(all, func(a, b *Key) int {
			return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID(), b.ID()))
		})
	},
	change: func(was sharedLine, k *Key, filed bool) sharedLine {
		switch {
		case k == nil:
			return sharedLine{}
		case filed && was.endsBefore(k.Expires):
			return sharedLine{Line: was.Dropped} // the file doesn't have the end that a command has given it
		}
		return sharedLine{Line: k.String()}
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
func (l sharedLine) endsBefore(end time.Time) bool {
	if strings.TrimSpace(l.Dropped) == "" {
		return false
	}
	old, err := parseKey(l.Dropped)
	return err == nil && !old.Expires.IsZero() && (end.IsZero() || old.Expires.Before(end))
}
