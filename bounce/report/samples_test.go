package report

import (
	"archive/zip"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// expected is what a sample reports.
type expected struct{ Temporary, Permanent []string }

// flufl returns the samples of flufl.bounce, with the recipients that its tests expect. testdata/README.md
// has their origin.
func flufl(t testing.TB) (samples map[string][]byte, want map[string]expected) {
	t.Helper()
	text, err := os.ReadFile("testdata/flufl.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader("testdata/flufl.bounce-6.0.0.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	samples = make(map[string][]byte)
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if samples[f.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	delete(samples, "LICENSE")
	return samples, want
}

// TestFluflSamples: of the recipients that the authors of the samples expect 97 in 100 are found, and 98 in
// 100 of those that are found are expected; what is temporary is never called permanent.
func TestFluflSamples(t *testing.T) {
	samples, want := flufl(t)
	if len(samples) != 117 || len(want) != 117 {
		t.Fatalf("%d samples, %d expectations, want 117", len(samples), len(want))
	}
	var expectedN, foundN, right, wrongKind int
	for name, content := range samples {
		r := Read(content, Options{})
		w := want[name]
		all := lower(append(slices.Clone(w.Temporary), w.Permanent...))
		expectedN += len(all)
		for _, p := range r.Reports {
			foundN++
			switch address := strings.ToLower(p.Recipient); {
			case !slices.Contains(all, address):
				t.Logf("%s (%v): %s is not expected, %v is", name, r.Kind, address, all)
			case p.Action != ActionFailed && !slices.Contains(lower(w.Temporary), address), p.Action != ActionDelayed && !slices.Contains(lower(w.Permanent), address):
				wrongKind++
				t.Logf("%s: %s is %s", name, address, p.Action)
				fallthrough
			default:
				right++
			}
		}
		for _, address := range all {
			if !slices.ContainsFunc(r.Reports, func(p Report) bool { return strings.ToLower(p.Recipient) == address }) {
				t.Logf("%s (%v): %s is missing", name, r.Kind, address)
			}
		}
	}
	recall, precision := float64(right)/float64(expectedN), float64(right)/float64(foundN)
	t.Logf("recall %.3f (%d of %d), precision %.3f (%d of %d)", recall, right, expectedN, precision, right, foundN)
	if recall < 0.97 || precision < 0.98 || wrongKind > 0 {
		t.Errorf("recall %.3f, precision %.3f, %d of the wrong kind", recall, precision, wrongKind)
	}
}

func lower(s []string) []string {
	for i := range s {
		s[i] = strings.ToLower(s[i])
	}
	return s
}
