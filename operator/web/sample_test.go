package web_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/web"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

func init() {
	web.OpenSample = func(t *testing.T) *web.Sample {
		o := relaytest.Serve(t, func(t *testing.T) *relaytest.Sample { return relaytest.NewSample(t, "", doubt) })
		t.Cleanup(o.Close)
		return &web.Sample{Handler: o, IDs: o.IDs, Dir: o.Dir, Pass: func(d time.Duration) { o.Do(func() { time.Sleep(d) }) }}
	}
}

// doubt sets an entry of the suppression list aside.
func doubt(s *relaytest.Sample) {
	store, err := boltstore.Open(filepath.Join(s.Dir, "suppression.db"), nil, nil, nil)
	if err != nil {
		panic(err)
	}
	e := suppression.Entry{Key: suppression.Key{Address: "carol@huge.example"}, Source: suppression.Bounce, Provider: "huge", Added: relaytest.Now}
	if err := errors.Join(store.Pending().Apply(context.Background(), []suppression.Change{{Entry: e}}), store.Close()); err != nil {
		panic(err)
	}
}
