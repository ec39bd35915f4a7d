package resolver

import (
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	t0 := time.Unix(1_000_000, 0)
	c := NewCache[string, int](2)
	c.Put("a", 1, t0.Add(time.Minute))
	c.Put("b", 2, t0.Add(time.Minute))
	if v, ok := c.Get("a", t0); !ok || v != 1 {
		t.Errorf("a: %d, %v", v, ok)
	}
	c.Put("c", 3, t0.Add(time.Minute)) // b is the least recently used
	if _, ok := c.Get("b", t0); ok {
		t.Error("b is still there")
	}
	if _, ok := c.Get("a", t0); !ok {
		t.Error("a is gone")
	}
	c.Put("a", 4, t0.Add(time.Second))
	if v, ok := c.Get("a", t0.Add(time.Second-1)); !ok || v != 4 {
		t.Errorf("a put again: %d, %v", v, ok)
	}
	if _, ok := c.Get("a", t0.Add(time.Second)); ok {
		t.Error("a has expired and is still seen")
	}
	if c.Len() != 1 {
		t.Errorf("%d entries, want c alone", c.Len())
	}
	c.Drop("a")
	c.Drop("c")
	if _, ok := c.Get("c", t0); ok || c.Len() != 0 || c.recent.Len() != 0 {
		t.Error("c was dropped and is still there")
	}
}

func TestCacheNeverGrowsOverItsLimit(t *testing.T) {
	t0 := time.Unix(1_000_000, 0)
	c := NewCache[int, int](100)
	for i := range 10_000 {
		c.Put(i, i, t0.Add(time.Hour))
	}
	if c.Len() != 100 || c.recent.Len() != 100 {
		t.Errorf("%d entries, %d in the list", c.Len(), c.recent.Len())
	}
	for i := 9_900; i < 10_000; i++ {
		if v, ok := c.Get(i, t0); !ok || v != i {
			t.Errorf("%d: %d, %v", i, v, ok)
		}
	}
}
