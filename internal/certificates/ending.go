package certificates

import "time"

// expiresSoon is how long before the end of a certificate operators are warned: renewal should have come weeks before.
const expiresSoon = 14 * 24 * time.Hour

// Ending returns in words that a certificate has ended, or ends soon; "" if neither.
func Ending(end, now time.Time) string {
	day := end.UTC().Format(time.DateOnly)
	switch left := end.Sub(now); {
	case left <= 0:
		return "expired on " + day
	case left < expiresSoon:
		return "expires on " + day
	}
	return ""
}
