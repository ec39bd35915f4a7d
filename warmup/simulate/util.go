package simulate

import (
	"maps"
	"slices"
	"time"
)

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
