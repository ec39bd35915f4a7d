package messages

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/submission/intake"
)

// KeyStore is what the queue knows of requests that have a key: those that this relay has taken, and, under
// RequestKey.Moved, those of other relays whose keys were imported. The latter are records of imports, whose answer is
// an exported.Key: so nothing takes the ids of another relay for those of this one.
type KeyStore struct{ Queue *queue.Queue }

// Keyed implements intake.RepeatStore.
func (s KeyStore) Keyed(key intake.RequestKey) (intake.StoredRequest, bool, error) {
	known, ok, err := s.Queue.Keyed(key)
	if !ok || err != nil || known.Request != key {
		return intake.StoredRequest(known), ok, err
	}
	k, ids, err := exported.DecodeKey(known.Answer)
	if err != nil { // there is none
		return intake.StoredRequest{}, false, nil
	}
	return intake.StoredRequest{Request: [16]byte(k.Request), IDs: ids, Whole: k.Whole, Answer: k.Answer,
		Until: known.Until}, true, nil
}

const (
	// maxSecrets is how many relays there can be whose keys are known, and secretKept is how long their secrets are
	// kept beyond their keys.
	maxSecrets = 64
	secretKept = 7 * 24 * time.Hour
	// keysAtOnce and answersAtOnce bound a file of keys: their number, and the octets of their answers.
	keysAtOnce = 1000
	// maxPlaces bounds a list of relays and archives.
	maxPlaces     = 20
	answersAtOnce = 1 << 20
)

// secretKey names the record of an import that has the secret of another relay.
func secretKey(n int) queue.Key {
	sum := sha256.Sum256(fmt.Appendf(nil, "mta queue import, secret\x00%d", n))
	return envelope.NewRequestKey([4]byte{}, [10]byte(sum[:]))
}

// Secrets returns the secrets of the relays whose keys were imported.
func (s KeyStore) Secrets() (list []string, err error) {
	for n := range maxSecrets {
		known, ok, err := s.Queue.Keyed(secretKey(n))
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, string(known.Answer))
		}
	}
	return list, nil
}

// keep stores what an import has brought.
func (s KeyStore) keep(key queue.Key, what []byte, until time.Time) error {
	_, err := s.Queue.CommitBatch(&queue.Batch{Key: key, Request: key, Last: true, Answer: what, Until: until})
	return err
}

// placesKey names a list of places: for a tenant, where its mail was moved; for fromOthers, the relays whose mail was
// moved here.
func placesKey(of string) queue.Key {
	sum := sha256.Sum256([]byte("mta queue moved\x00" + of))
	return envelope.NewRequestKey([4]byte{}, [10]byte(sum[:]))
}

// fromOthers is no tenant's name, nor is what toOthers makes of one.
const fromOthers = "from"

func toOthers(tenant string) string { return "to " + tenant }

// places returns such a list, the newest last.
func (s KeyStore) places(of string) ([]string, time.Time, error) {
	known, ok, err := s.Queue.Keyed(placesKey(of))
	if !ok || err != nil {
		return nil, time.Time{}, err
	}
	return strings.Split(string(known.Answer), "\n"), known.Until, nil
}

// notePlaces adds to such a list. It writes when a place is new, and once a day.
func (s KeyStore) notePlaces(of string, until time.Time, more ...string) error {
	list, was, err := s.places(of)
	if err != nil {
		return err
	}
	n := len(list)
	for _, place := range more {
		if !slices.Contains(list, place) {
			list = append(list, place)
		}
	}
	if len(list) == n && was.After(until.Add(-24*time.Hour)) {
		return nil
	}
	list = list[max(0, len(list)-maxPlaces):]
	return s.keep(placesKey(of), []byte(strings.Join(list, "\n")), until)
}

// MovedTo returns the relays and archives to which mail of a tenant was moved lately.
func (s KeyStore) MovedTo(tenant string) ([]string, error) {
	list, _, err := s.places(toOthers(tenant))
	return list, err
}

// MovedHere returns the ids here of messages that had an id at another relay, from which they were moved lately. They
// can be of several tenants, as relays number their messages independently.
func (s KeyStore) MovedHere(id envelope.ID) (ids []envelope.ID, err error) {
	nodes, _, err := s.places(fromOthers)
	for _, node := range nodes {
		if err = s.parts(func(n uint32) queue.Key { return importKey(node, id.String(), n) },
			func(_ queue.Key, k *queue.Keyed) {
				if k != nil && k.IDs[0] != 0 {
					ids = append(ids, k.IDs[0])
				}
			}); err != nil {
			return nil, err
		}
	}
	return ids, err
}

// parts gives each the records of imports under one name after the other, as far as there are any; and the first name
// that is free, without a record.
func (s KeyStore) parts(name func(n uint32) queue.Key, each func(queue.Key, *queue.Keyed)) error {
	for n := uint32(0); ; n++ {
		key := name(n)
		k, ok, err := s.Queue.Keyed(key)
		if err != nil {
			return err
		}
		if !ok || !k.Whole {
			each(key, nil)
			return nil
		}
		each(key, &k)
	}
}

// keepSecret keeps the secret of another relay for as long as its keys.
func (s KeyStore) keepSecret(secret string, until time.Time) error {
	free := -1
	for n := range maxSecrets {
		known, ok, err := s.Queue.Keyed(secretKey(n))
		if err != nil {
			return err
		}
		if ok && string(known.Answer) == secret {
			if !known.Until.Before(until) {
				return nil
			}
			free = n
			break
		}
		if !ok && free < 0 {
			free = n
		}
	}
	if free < 0 {
		return fmt.Errorf("the keys of %d other relays are here already", maxSecrets)
	}
	return s.keep(secretKey(free), []byte(secret), until.Add(secretKept))
}

// exportKeys writes the keys of a tenant, or all where that is "". Keys that earlier versions of this program have made
// are not among them: they don't have a tenant.
func (m *Moves) exportKeys(out *exported.Writer, tenant string) error {
	shares := m.Repeats.Shares(tenant)
	fits := func(key queue.Key) bool {
		of, _ := key.Tenant()
		return tenant == "" || slices.Contains(shares, of)
	}
	var some []exported.Key
	answers := 0
	flush := func() (err error) {
		if len(some) > 0 {
			err = out.Keys(some)
		}
		some, answers = some[:0], 0
		return err
	}
	err := m.Queue.Keys(fits, func(key queue.Key, known *queue.Keyed) error {
		k := &exported.Key{Key: key[:], Secret: []byte(m.Repeats.Secret()), Request: known.Request[:],
			Whole: known.Whole, Answer: known.Answer, Until: known.Until.UTC()}
		if known.Request == key {
			var err error
			if k, _, err = exported.DecodeKey(known.Answer); err != nil { // there is none
				return nil
			}
		} else if len(known.IDs) > 0 {
			k.IDs = make(map[int]string, len(known.IDs))
			for position, id := range known.IDs {
				k.IDs[position] = id.String()
			}
		}
		some, answers = append(some, *k), answers+len(k.Answer)
		if len(some) < keysAtOnce && answers < answersAtOnce {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return err
}

// keys stores keys of another relay. They are durable before the first message that comes after them is taken.
func (im *importer) keys(some []exported.Key) error {
	im.mu.Lock()
	im.done.Keys += len(some)
	im.mu.Unlock()
	if im.opts.DryRun {
		return nil
	}
	store := KeyStore{im.to.Queue}
	last := map[string]time.Time{} // of the keys of each secret
	for i := range some {
		if k := &some[i]; k.Until.After(last[string(k.Secret)]) {
			last[string(k.Secret)] = k.Until
		}
	}
	const remedy = "look at 'mta status' and the log, and import again: messages that were taken are not taken twice"
	for secret, until := range last {
		if err := store.keepSecret(secret, until); err != nil {
			return api.Unavailable(remedy, "storing idempotency keys: %v", err)
		}
	}
	secrets, err := store.Secrets()
	if err != nil {
		return api.Unavailable(remedy, "reading idempotency keys: %v", err)
	}
	im.to.Repeats.Moved(secrets)
	var commits errgroup.Group
	commits.SetLimit(importsAtOnce / importOctets)
	for i := range some {
		commits.Go(func() error { return store.keepKey(&some[i]) })
	}
	if err := commits.Wait(); err != nil {
		return api.Unavailable(remedy, "storing idempotency keys: %v", err)
	}
	return nil
}

// keepKey keeps a key, unless as much is known of its request.
func (s KeyStore) keepKey(k *exported.Key) error {
	name := k.Name().Moved()
	there, ok, err := s.Keyed(name)
	if err != nil || ok && (there.Whole || len(there.IDs) > len(k.IDs) || len(there.IDs) == len(k.IDs) && !k.Whole) {
		return err
	}
	text, err := k.Encode()
	if err != nil {
		return err
	}
	return s.keep(name, text, k.Until)
}
