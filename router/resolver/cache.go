package resolver

import (
	"container/list"
	"iter"
	"time"
)

// Cache maps keys to values that expire. It is bounded in entries and in time: what was not used for longest goes
// first, what has expired is not seen again. Its owner guards it.
type Cache[K comparable, V any] struct {
	limit   int
	entries map[K]*list.Element
	recent  *list.List // of *entry[K, V], the latest used in front
}

type entry[K comparable, V any] struct {
	key     K
	value   V
	expires time.Time
}

// NewCache makes a cache of at most limit entries, at least one.
func NewCache[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: max(1, limit), entries: make(map[K]*list.Element), recent: list.New()}
}

// Get gives the value of k unless it has expired by now.
func (c *Cache[K, V]) Get(k K, now time.Time) (v V, ok bool) {
	el, ok := c.entries[k]
	if !ok {
		return v, false
	}
	e := el.Value.(*entry[K, V])
	if !now.Before(e.expires) {
		c.drop(el)
		return v, false
	}
	c.recent.MoveToFront(el)
	return e.value, true
}

// Put keeps v under k until expires, and lets go of the least recently used when that is one too
// many.
func (c *Cache[K, V]) Put(k K, v V, expires time.Time) {
	if el, ok := c.entries[k]; ok {
		e := el.Value.(*entry[K, V])
		e.value, e.expires = v, expires
		c.recent.MoveToFront(el)
		return
	}
	if len(c.entries) >= c.limit {
		c.drop(c.recent.Back())
	}
	c.entries[k] = c.recent.PushFront(&entry[K, V]{k, v, expires})
}

// Drop forgets k.
func (c *Cache[K, V]) Drop(k K) {
	if el, ok := c.entries[k]; ok {
		c.drop(el)
	}
}

// All gives the entries that have not expired by now, the latest used first.
func (c *Cache[K, V]) All(now time.Time) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for el := c.recent.Front(); el != nil; el = el.Next() {
			if e := el.Value.(*entry[K, V]); now.Before(e.expires) && !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Len counts the entries, those that have expired unseen too.
func (c *Cache[K, V]) Len() int { return len(c.entries) }

func (c *Cache[K, V]) drop(el *list.Element) {
	delete(c.entries, el.Value.(*entry[K, V]).key)
	c.recent.Remove(el)
}
