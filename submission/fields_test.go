package submission

import (
	"slices"
	"testing"
)

// What a message lacks of the fields that receivers ask for is told, whatever the case of their names.
func TestMissingFieldsAreTold(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		for content, want := range map[string][]string{
			"Subject: x\r\n\r\nDate: in the body\r\n": {"Date", "Message-ID", "List-Unsubscribe", "List-Unsubscribe-Post"},
			"date: x\r\nMESSAGE-ID: <x@y>\r\n\r\n":    {"List-Unsubscribe", "List-Unsubscribe-Post"},
			"Date: x\r\nMessage-ID: <x@y>\r\nList-Unsubscribe: <https://y.example/>,\r\n <mailto:x@y.example>\r\n\r\n":                   {"List-Unsubscribe-Post"},
			"Date: x\r\nMessage-ID: <x@y>\r\nlist-unsubscribe: <https://y>\r\nList-Unsubscribe-POST: List-Unsubscribe=One-Click\r\n\r\n": nil,
		} {
			p.data(content)
			var got []string
			for f := range r.events.missing[len(r.events.missing)-1].All() {
				got = append(got, f.String())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q lacks %v, want %v", content, got, want)
			}
		}
	})
}
