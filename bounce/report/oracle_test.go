package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jhillyerd/enmime/v2"
)

// TestSplitAsEnmime: the parts that machines wrote are the same as those that enmime finds, which is
// tolerant and far slower. Of some broken headers it makes nothing.
func TestSplitAsEnmime(t *testing.T) {
	samples, _ := flufl(t)
	for name, sample := range hosts(t) {
		samples[name] = []byte(sample[1])
	}
	compared := 0
	for name, content := range broken(samples) {
		if content = bytes.TrimLeft(content, "\r\n"); bytes.HasPrefix(content, []byte("From ")) {
			_, content, _ = bytes.Cut(content, []byte("\n")) // enmime takes it for a field
		}
		root, err := enmime.ReadParts(bytes.NewReader(content))
		if err != nil {
			t.Logf("%s: enmime: %v", name, err)
			continue
		}
		var want, got []string
		for _, p := range root.DepthMatchAll(func(p *enmime.Part) bool { return isReport(p.ContentType) }) {
			want = append(want, p.ContentType+": "+squeeze(string(p.Content)))
		}
		parts := Split(content)
		for i := range parts {
			if p := &parts[i]; isReport(p.Type) {
				got = append(got, p.Type+": "+squeeze(p.Text()))
			}
		}
		compared += len(want)
		if len(want) > 0 && strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%q, enmime:\n%q", name, got, want)
		}
	}
	t.Logf("%d parts compared", compared)
	if compared < 100 {
		t.Errorf("only %d parts were compared", compared)
	}
}

// broken adds to each sample those that its writers might have sent instead: not closed, with a line in the
// header that is no field, with a charset that does not exist.
func broken(samples map[string][]byte) map[string][]byte {
	all := make(map[string][]byte)
	for name, content := range samples {
		all[name] = content
		if end := bytes.LastIndex(content, []byte("\n--")); end > 0 && bytes.HasSuffix(bytes.TrimSpace(content), []byte("--")) {
			all[name+", unclosed"] = content[:end]
		}
		all[name+", no field"] = bytes.Replace(content, []byte("\nSubject:"), []byte("\nthis is no field\nSubject:"), 1)
		all[name+", unknown charset"] = bytes.ReplaceAll(content, []byte("us-ascii"), []byte("x-unknown"))
	}
	return all
}

func isReport(mediaType string) bool {
	return mediaType == "message/delivery-status" || mediaType == "message/feedback-report" || mediaType == "message/disposition-notification"
}

// squeeze joins the words of a text by single spaces.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// BenchmarkEnmime is what the same samples cost enmime.
func BenchmarkEnmime(b *testing.B) {
	samples, _ := flufl(b)
	var all [][]byte
	for _, content := range samples {
		all = append(all, content)
	}
	i := 0
	for b.Loop() {
		_, _ = enmime.ReadParts(bytes.NewReader(all[i%len(all)]))
		i++
	}
}

// BenchmarkSplit is what they cost us.
func BenchmarkSplit(b *testing.B) {
	samples, _ := flufl(b)
	var all [][]byte
	for _, content := range samples {
		all = append(all, content)
	}
	i := 0
	for b.Loop() {
		Split(all[i%len(all)])
		i++
	}
}
