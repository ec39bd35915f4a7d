package exported

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
)

// keysFile is keys-N.json. Such files precede the messages of an archive: a relay has the keys of the requests first.
type keysFile struct {
	Version int   `json:"version"`
	Keys    []Key `json:"keys"`
}

// Key is what a relay knows of a request that had an Idempotency-Key.
type Key struct {
	Key     []byte         `json:"key"`     // its name: an envelope.RequestKey that has a tenant
	Secret  []byte         `json:"secret"`  // of the relay that has named it
	Request []byte         `json:"request"` // the sum of it there
	IDs     map[int]string `json:"ids,omitempty"`
	Whole   bool           `json:"whole,omitempty"` // it was answered
	Answer  []byte         `json:"answer,omitempty"`
	Until   time.Time      `json:"until"` // when it is forgotten
}

const (
	keysPrefix = "keys-"
	// maxSecret bounds a secret, in octets.
	maxSecret = 1000
)

// Encode returns the key as it is in an archive.
func (k *Key) Encode() ([]byte, error) { return json.Marshal(k) }

// DecodeKey is the inverse of Encode. The error names the field that is wrong.
func DecodeKey(text []byte) (k *Key, ids map[int]envelope.ID, err error) {
	k = new(Key)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(k); err != nil {
		return nil, nil, err
	}
	ids, err = k.check()
	return k, ids, err
}

// Name returns the key's name.
func (k *Key) Name() envelope.RequestKey { return envelope.RequestKey(k.Key) }

func (k *Key) check() (ids map[int]envelope.ID, err error) {
	f := &faults{}
	if len(k.Key) != len(envelope.RequestKey{}) {
		f.wrong("key", "it has %d octets", len(k.Key))
	} else if _, ok := k.Name().Tenant(); !ok {
		f.wrong("key", "it does not have a tenant")
	}
	if len(k.Request) != 16 {
		f.wrong("request", "it has %d octets; there must be 16", len(k.Request))
	}
	if len(k.Secret) == 0 || len(k.Secret) > maxSecret {
		f.wrong("secret", "it has %d octets; there must be 1 to %d", len(k.Secret), maxSecret)
	}
	if k.Until.IsZero() {
		f.wrong("until", "it is missing")
	}
	f.time("until", k.Until)
	ids = make(map[int]envelope.ID, len(k.IDs))
	for position, text := range k.IDs {
		if ids[position], err = envelope.ParseID(text); err != nil || position < 0 {
			f.wrong(fmt.Sprintf("ids[%d]", position), "%q is not the id of a message", text)
		}
	}
	return ids, f.err
}

// Keys writes some keys. They must precede the messages.
func (w *Writer) Keys(some []Key) error {
	text, err := encode(&keysFile{Version, some})
	if err != nil {
		return err
	}
	w.keys++
	return w.json(fmt.Sprintf("%s%d.json", keysPrefix, w.keys), text)
}
