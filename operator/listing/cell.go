package listing

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
)

// Cell is what a row has in a column. The zero Cell is blank.
type Cell struct {
	Text  string  // in few characters; Nothing: there is none, or it isn't known
	Long  string  // where there is space; "": Text
	By    float64 // what a figure is sorted by
	Is    Kind
	Time  time.Time // that the text is about
	Links []Link    // to what the text names; several stand in its place
}

// Kind is what a cell has.
type Kind uint8

// The kinds of cells.
const (
	IsText Kind = iota
	IsFigure
	IsState
)

// Link leads to what a cell names.
type Link struct {
	To, Name string
	Text     string // "": that of the cell
}

// What links lead to.
const (
	ToMessage  = "message"
	ToSite     = "site"
	ToSource   = "source"
	ToPool     = "pool"
	ToTenant   = "tenant"
	ToTenants  = "tenants" // of a pool
	ToProvider = "provider"
	ToWarmup   = "warm-up"
	ToQueue    = "queue" // of a tenant
)

// Nothing is the text of a cell without a value.
const Nothing = "-"

// Compare orders cells of a column: figures by number, texts by letter.
func (c Cell) Compare(o Cell) int {
	if c.Is == IsFigure || o.Is == IsFigure {
		return cmp.Compare(c.By, o.By)
	}
	return strings.Compare(strings.ToLower(c.Text), strings.ToLower(o.Text))
}

// Word is a text.
func Word[S ~string](s S) Cell { return Cell{Text: cmp.Or(string(s), Nothing)} }

// State is a word that has a colour.
func State[S ~string](s S) Cell { return Cell{Text: cmp.Or(string(s), Nothing), Is: IsState} }

// Name is a text that links to what it names.
func Name(to, name string) Cell { return Word(name).to(to, name) }

func (c Cell) to(to, name string) Cell {
	if name != "" {
		c.Links = []Link{{To: to, Name: name}}
	}
	return c
}

// Names counts names in few characters, and links them where there is space.
func Names(to string, names []string) Cell {
	c := Count(len(names))
	for _, n := range names {
		c.Links = append(c.Links, Link{to, n, n})
	}
	return c
}

// Address is one of mail; the null sender is <>.
func Address(a string) Cell { return Cell{Text: "<" + a + ">", Long: cmp.Or(a, "<>")} }

func figure(text string, by float64) Cell { return Cell{Text: text, By: by, Is: IsFigure} }

// Unknown is a figure that is not known.
func Unknown() Cell { return figure(Nothing, -1) }

// Count is a number of things.
func Count[T ~int | ~int64](n T) Cell {
	c := figure(fmt.Sprint(n), float64(n))
	c.Long = Thousands(int64(n))
	return c
}

// Thousands writes a number with its thousands apart.
func Thousands(n int64) string {
	digits := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Of is a number of the most that it can be.
func Of[T ~int | ~int64](n, most T) Cell {
	c := figure(fmt.Sprintf("%d/%d", n, most), float64(n))
	c.Long = Thousands(int64(n)) + " of " + Thousands(int64(most))
	return c
}

// OfLimit is a number beside its limit, if it has one.
func OfLimit[T ~int | ~int64](n, limit T) Cell {
	if limit <= 0 {
		return Count(n)
	}
	return Of(n, limit)
}

// Size is a number of octets.
func Size(n int64) Cell { return figure(legible.Size(n), float64(n)) }

// Rate is a number a second.
func Rate(r float64) Cell { return figure(legible.Rate(r), r) }

// KnownRate is a rate that is unknown while it is 0.
func KnownRate(r float64) Cell {
	if r == 0 {
		return Unknown()
	}
	return Rate(r)
}

// ago is how long something is past, of which the longest is the largest.
func (l Look) ago(t time.Time) Cell {
	if t.IsZero() {
		return Unknown()
	}
	c := figure(legible.Age(l.Now.Sub(t)), l.Now.Sub(t).Seconds())
	c.Long, c.Time = c.Text+" ago", t
	return c
}

// until is how long something is yet to come; what is due is "due".
func (l Look) until(t time.Time) Cell {
	if t.IsZero() {
		return Unknown()
	}
	c := figure("due", t.Sub(l.Now).Seconds())
	if t.After(l.Now) {
		c.Text = legible.Left(t.Sub(l.Now))
		c.Long = "in " + c.Text
	}
	c.Time = t
	return c
}

// history is the sum of what the history has of some series.
func (l Look) history(series []string, write func(float64) string) Cell {
	sum, found := 0.0, false
	for _, name := range series {
		if f, ok := l.Latest[name]; ok && f.Known() {
			sum, found = sum+float64(f), true
		}
	}
	if !found {
		return Unknown()
	}
	return figure(write(sum), sum)
}

func (l Look) rate(series ...string) Cell { return l.history(series, legible.Rate) }

func (l Look) whole(series ...string) Cell {
	return l.history(series, func(f float64) string { return fmt.Sprintf("%.0f", f) })
}

func (l Look) seconds(series string) Cell {
	return l.history([]string{series}, func(f float64) string {
		if f < 1 {
			return fmt.Sprintf("%.0fms", 1000*f)
		}
		return legible.Age(time.Duration(f * float64(time.Second)))
	})
}

// More is how long something goes on, " (for 5m more)"; "" when that is not known or no time at all.
func (l Look) More(t time.Time) string {
	if d := t.Sub(l.Now); !t.IsZero() && d >= time.Second {
		return " (for " + legible.Left(d) + " more)"
	}
	return ""
}

// Action is what holds mail back, and for how long.
func (l Look) Action(a api.SiteAction) string {
	what := a.What
	if a.Rate > 0 {
		what += " to " + gcra.Of(a.Rate).String()
	}
	if a.Connections > 0 {
		what += " on " + legible.Count(a.Connections, "connection")
	}
	return what + From(a.Source) + " for " + legible.Left(a.End.Sub(l.Now)) + " more: " + oneLine(a.Reason)
}

// From names the one source that something is of, if it is of one.
func From(source string) string {
	if source == "" {
		return ""
	}
	return " from " + source
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " / ") }

// LastError is the last failure and its age, "" without one.
func (l Look) LastError(t *api.Tally) string {
	if t.LastError == nil {
		return ""
	}
	return "last error " + legible.Age(l.Now.Sub(t.ErrorAt)) + " ago: " + t.LastError.String()
}

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
	"throttled": Warn, "slowed": Warn, "starting": Warn,
	"failed": Bad, "held": Bad, "unreadable": Bad, "suspended": Bad, "missing": Bad, "paused": Bad, "refusing": Bad,
	"alarm": Bad, "Bounce": Bad, "Expiration": Bad, "AdminBounce": Bad, "Cancellation": Bad, "Rejection": Bad,
	"Damage": Bad, "Lost": Bad, "store_down": Bad, "corrupt": Bad, "failing": Bad, "bounced": Bad, "expired": Bad,
	"due": Info, "new": Info,
}

// ColourOf gives the colour of a state.
func ColourOf(state string) Colour { return colours[state] }

// tally are the columns of what was counted since the start of the relay. What expired has bounced, too.
func tally[T any](in Face, of func(*T) *api.Tally) []Column[T] {
	return []Column[T]{
		{Title: "DELIVERED", Right: true, In: in, Cell: func(x *T) Cell { return Count(of(x).Delivered) }},
		{Title: "DEFERRALS", Right: true, In: in, Cell: func(x *T) Cell { return Count(of(x).Deferred) }},
		{Title: "BOUNCED", Right: true, In: in, Cell: func(x *T) Cell { return Count(of(x).Bounced + of(x).Expired) }},
	}
}

// load are the columns of what delivery has in hand, in transactions.
func load[T any](in Face, of func(*T) *api.Load) []Column[T] {
	return []Column[T]{
		{Title: "CONNS", Right: true, Spare: 3, Cell: func(x *T) Cell { return Count(of(x).Connections) }},
		{Title: "READY", Right: true, Spare: 4, In: in, Cell: func(x *T) Cell { return Count(of(x).Waiting) }},
		{Title: "RUNNING", Right: true, Spare: 7, In: in, Cell: func(x *T) Cell { return Count(of(x).Running) }},
	}
}

// waits is the column of what mail waits for but its turn: the commonest reason, in the order of all of that.
func waits[T any](spare int, of func(*T) []api.WaitsFor) Column[T] {
	return Column[T]{Title: "WAITS FOR", Right: true, Spare: spare, Cell: func(x *T) Cell {
		for _, w := range of(x) {
			if w.Reason != parking.Turn {
				return figure(fmt.Sprintf("%v: %d", w.Reason, w.Recipients), float64(api.Worst(of(x))))
			}
		}
		return Unknown()
	}}
}

// rate is a column of figures that the history keeps: the sum of some series.
func rate[T any](title string, spare int, series ...string) Column[T] {
	return Column[T]{Title: title, Right: true, Spare: spare, In: Top,
		At: func(_ *T, l Look) Cell { return l.rate(series...) }}
}
