package bounce

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/reply"
)

// Unknown remembers what no rule knows: how many replies by provider, and samples of them. It is safe for
// concurrent use, and bounded whatever hosts answer.
type Unknown struct {
	mu        sync.Mutex
	providers map[string]*unknownOf // guarded by mu
}

const (
	maxUnknownProviders = 200 // further ones count as ""
	maxSamples          = 25  // of a provider; the one seen longest ago makes place
	maxSampleText       = 500 // octets
)

type unknownOf struct {
	count   int64
	samples map[string]*Sample // by what is left of the text without numbers and names
}

// Sample is a reply that no rule knows, and how often the provider gave it, numbers and addresses aside.
type Sample struct {
	Reply       reply.Reply // the latest
	Message     string      // that it refused, "" if that is not known
	Count       int64
	First, Last time.Time
}

// UnknownReplies are those of a provider, the most frequent first.
type UnknownReplies struct {
	Provider string // "": of sites without one
	Count    int64  // of all, those that are not among the samples too
	Samples  []Sample
}

// Add counts a reply that is Uncategorized.
func (u *Unknown) Add(provider string, r reply.Reply, message string, now time.Time) {
	r.Text = strings.ToValidUTF8(strings.Clone(r.Text[:min(len(r.Text), maxSampleText)]), "?")
	k := string(AppendPattern(nil, &r))
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.of(provider)
	of.count++
	s := of.samples[k]
	if s == nil {
		if len(of.samples) >= maxSamples {
			of.forget()
		}
		s = &Sample{First: now}
		of.samples[k] = s
	}
	s.Count++
	s.Reply, s.Message, s.Last = r, message, now
}

func (u *Unknown) of(provider string) *unknownOf {
	if u.providers == nil {
		u.providers = make(map[string]*unknownOf)
	}
	if u.providers[provider] == nil {
		if len(u.providers) >= maxUnknownProviders {
			provider = ""
		}
		if u.providers[provider] == nil {
			u.providers[provider] = &unknownOf{samples: make(map[string]*Sample)}
		}
	}
	return u.providers[provider]
}

// forget drops the sample that was seen longest ago.
func (o *unknownOf) forget() {
	oldest := ""
	for k, s := range o.samples {
		if oldest == "" || s.Last.Before(o.samples[oldest].Last) {
			oldest = k
		}
	}
	delete(o.samples, oldest)
}

// AppendPattern adds what replies have in common that differ in numbers, names and addresses only.
func AppendPattern(to []byte, r *reply.Reply) []byte {
	to = append(append(to, byte('0'+min(max(r.Code/100, 0), 9))), r.Enhanced.String()...)
	for word := range bytes.FieldsSeq(plain(r.Text)) {
		if bytes.ContainsAny(word, "0123456789") {
			word = []byte{'#'}
		}
		to = append(append(to, ' '), word...)
	}
	return to
}

// List gives what is remembered, of one provider or, with nil, of all, those with the most first.
func (u *Unknown) List(provider *string) []UnknownReplies {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := []UnknownReplies{}
	for name, of := range u.providers {
		if provider != nil && name != *provider {
			continue
		}
		l := UnknownReplies{Provider: name, Count: of.count}
		for _, s := range of.samples {
			l.Samples = append(l.Samples, *s)
		}
		slices.SortFunc(l.Samples, func(a, b Sample) int {
			if a.Count != b.Count {
				return int(b.Count - a.Count)
			}
			return b.Last.Compare(a.Last)
		})
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b UnknownReplies) int {
		if a.Count != b.Count {
			return int(b.Count - a.Count)
		}
		return strings.Compare(a.Provider, b.Provider)
	})
	return all
}
