package parking

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The texts are in the journals of every release.
var texts = map[string]Key{
	"":                              {},
	"mx.example.org":                {Name: "mx.example.org"},
	"[192.0.2.1]":                   {Name: "[192.0.2.1]"},
	"warmup:acme/google":            {Kind: Tokens, Name: "acme", Provider: "google"},
	"warmup:acme/":                  {Kind: Tokens, Name: "acme"},
	"paused: everything":            {Kind: Pause, Name: "everything"},
	"paused: domain example.org":    {Kind: Pause, Name: "domain example.org"},
	"window: news: 08:00-20:00 UTC": {Kind: Hours, Name: "news: 08:00-20:00 UTC"},
	"paced: tenant a, campaign b":   {Kind: Pace, Name: "tenant a, campaign b"},
	"paused: tenant warmup:odd/1":   {Kind: Pause, Name: "tenant warmup:odd/1"},
}

func TestTextsOfKeys(t *testing.T) {
	for text, key := range texts {
		if got := key.String(); got != text {
			t.Errorf("%+v is %q on disk, want %q", key, got, text)
		}
		if got := Parse(text); got != key {
			t.Errorf("%q is %+v, want %+v", text, got, key)
		}
	}
}

func TestTextsOfReasons(t *testing.T) {
	for text, line := range map[string]Line{
		"greylisted: mx.example.org": {Key: Key{Name: "mx.example.org"}, Reason: Greylisted},
		"mx.example.org":             {Key: Key{Name: "mx.example.org"}},
		"paused: domain example.org": {Key: Key{Kind: Pause, Name: "domain example.org"}},
		"warmup:acme/google":         {Key: Key{Tokens, "acme", "google"}},
	} {
		if got := line.Text(); got != text {
			t.Errorf("%+v is %q on disk, want %q", line, got, text)
		}
		if got := ParseLine(text); got != line {
			t.Errorf("%q is %+v, want %+v", text, got, line)
		}
	}
	if got, want := ParseLine("lunar: mx.example.org"), (Line{Key: Key{Name: "mx.example.org"}}); got != want {
		t.Errorf("a reason of a later version leaves %+v, want %+v", got, want)
	}
	for r := Reason(0); r < reasons; r++ {
		if l := (Line{Key: Key{Name: "mx"}, Reason: r}); ParseLine(l.Text()) != l {
			t.Errorf("%v does not come back from %q", r, l.Text())
		}
	}
}

func TestManualHasTheReasons(t *testing.T) {
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Why mail waits")
	section, _, _ = strings.Cut(section, "\n## ")
	var words []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(.*?)` ").FindAllStringSubmatch(section, -1) {
		words = append(words, row[1])
	}
	want := Reasons()
	slices.Sort(words)
	if slices.Sort(want); !slices.Equal(words, want) {
		t.Errorf("docs/monitoring.md has %q, want %q", words, want)
	}
}

func FuzzParse(f *testing.F) {
	for text := range texts {
		f.Add(text)
	}
	f.Add("warmup:a/b/c")
	f.Fuzz(func(t *testing.T, text string) {
		k := Parse(text)
		if again := Parse(k.String()); again != k {
			t.Errorf("%q is %+v, whose text is that of %+v", text, k, again)
		}
		if k.Kind != Site && k.Site() != "" {
			t.Errorf("%+v has site %q", k, k.Site())
		}
	})
}

func TestCloneIsEqual(t *testing.T) {
	for _, l := range []Line{{Route: true}, {Key: Key{Tokens, "acme", "google"}, Source: "s", Tenant: "t", Tier: 2, Preferred: true}} {
		if c := l.Clone(); c != l {
			t.Errorf("the clone of %+v is %+v", l, c)
		}
	}
}
