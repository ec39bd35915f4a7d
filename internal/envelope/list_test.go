package envelope

import "testing"

// FuzzParseList holds the short way of ParseList to the parser.
func FuzzParseList(f *testing.F) {
	for _, s := range []string{"ann@example.com", "Shop 24 <ann.b+c@a-b.example>", " <a@b> ", "a@b>", "<a@b", "A. B <a@b>", "a..b@c", ".a@b", "a@b.", "a@b, c@d", "x<y<a@b>", "a@", "@b", "A <>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		short, ok := plainMailbox(value)
		if !ok {
			return
		}
		list, err := listParser.ParseList(value)
		if err != nil || len(list) != 1 || list[0].Address != short {
			t.Errorf("%q is %q, the parser has %v, %v", value, short, list, err)
		}
	})
}

func BenchmarkParseList(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseList("Shop <ann@client.example>"); err != nil {
			b.Fatal(err)
		}
	}
}
