package mta

import (
	"bytes"

	"example.org/mta/operator/api"
)

// imported hands an archive to a relay.
func (w *world) imported(archive []byte, o api.ImportOptions) api.Imported {
	w.t.Helper()
	done, err := w.api.Moves.Import(w.t.Context(), bytes.NewReader(archive), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return done
}

func (w *world) exported(f api.Filter) []byte {
	w.t.Helper()
	var archive bytes.Buffer
	if err := w.api.Moves.Export(w.t.Context(), &archive, f); err != nil {
		w.t.Fatal(err)
	}
	return archive.Bytes()
}
