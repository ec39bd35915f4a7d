package listing

// Colour is how a state looks. It only stresses the word.
type Colour uint8

// The colours.
const (
	Plain Colour = iota
	Good         // it goes on
	Warn         // it waits
	Bad          // it needs an operator
	Info         // it is new
)

// String gives the class of the colour in the console.
func (c Colour) String() string { return [...]string{"plain", "good", "warn", "bad", "info"}[c] }

// colours are those of the states. A word that is missing has none.
var colours = map[string]Colour{
	"running": Good, "active": Good, "idle": Good, "ok": Good, "Delivery": Good, "sending": Good, "normal": Good,
	"warm": Good, "good": Good, "open": Good, "delivered": Good, "yes": Good, "following": Good,
	"waiting": Warn, "deferred": Warn, "retry": Warn, "TransientFailure": Warn, "draining": Warn, "warning": Warn,
	"unknown": Warn, "warming": Warn, "scheduled": Warn, "over quota": Warn, "fewer connections": Warn, "behind": Warn,
	"throttled": Warn, "slowed": Warn,
	"failed": Bad, "held": Bad, "unreadable": Bad, "suspended": Bad, "missing": Bad, "paused": Bad, "refusing": Bad,
	"alarm": Bad, "Bounce": Bad, "Expiration": Bad, "AdminBounce": Bad, "Cancellation": Bad, "Rejection": Bad,
	"Damage": Bad, "Lost": Bad, "store_down": Bad, "corrupt": Bad, "failing": Bad, "bounced": Bad, "expired": Bad,
	"due": Info, "new": Info,
}

// ColourOf gives the colour of a state.
func ColourOf(state string) Colour { return colours[state] }
