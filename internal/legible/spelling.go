package legible

// Nearest gives the one of the candidates that given most likely means, "" when none is close. Words
// of one or two letters are like too many others.
func Nearest(given string, candidates []string) string {
	best, bound := "", 1+len(given)/3
	if len(given) < 3 {
		bound = 0
	}
	for _, c := range candidates {
		if max(len(given)-len(c), len(c)-len(given)) > bound {
			continue // given can have any length
		}
		if d := distance(given, c); d <= bound {
			best, bound = c, d-1
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a
// into b (restricted Damerau-Levenshtein distance, by octets).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
