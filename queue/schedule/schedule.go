// Package schedule is the small table in memory of everything that waits: one entry of 44
// octets without pointers per recipient, in order of message id, with the timer wheel, the
// first-in-first-out lists and the keys that entries wait under. It knows no mail, no disk and
// no lock: its owner has the mutex. It starts no goroutines.
//
// The order of use: Append entries as ids grow, Find them by id, put them on a List or, with a
// time, on the Wheel; SetState says what they are doing; Free them when they are done, and Tidy
// gives their memory back.
//
// Entries lie in chunks of 2,048. A chunk has no room for what comes later, so an id is found by
// binary search and needs no map; the dead among the living are what Tidy squeezes out. That
// moves entries: a Slot is good until the next Tidy and no longer, unless it is on a list.
package schedule

import (
	"math/bits"

	"example.org/mta/internal/envelope"
)

// Slot says where in the table an entry is. The upper bit marks the head of a list.
type Slot uint32

// None is no slot.
const None Slot = 0

const (
	chunkBits = 11 // so that a chunk fills pages of 8 KiB
	chunkLen  = 1 << chunkBits
	headBit   = Slot(1) << 31
)

func slotOf(handle uint32, i int) Slot { return Slot(handle)<<chunkBits | Slot(i) }
func (s Slot) handle() uint32          { return uint32(s) >> chunkBits }
func (s Slot) index() int              { return int(s) & (chunkLen - 1) }

// State is what an entry is doing. Every living entry is in one of them.
type State uint8

const (
	Dead       State = iota // no entry, or one that is done
	Due                     // to be handed out at once
	Deferred                // waits for its time
	Parked                  // waits under its key
	Held                    // an operator stopped it
	Leased                  // handed out
	Ending                  // is to be expired or bounced
	Unreadable              // its record is damaged: kept, and not handed out
	states
)

var stateNames = [states]string{"dead", "due", "deferred", "waiting", "held", "leased", "ending", "unreadable"}

// String gives the word for a log.
func (s State) String() string { return Word(stateNames[:], uint8(s)) }

// Word is the word for a number, one of words.
func Word(words []string, n uint8) string {
	if int(n) < len(words) && words[n] != "" {
		return words[n]
	}
	return "unknown"
}

// States is how many states there are, Dead included.
const States = int(states)

// Action is what an entry is to do when it is no longer leased, or why it is ending.
type Action uint8

const (
	Nothing Action = iota

	// What an operator asked for while it was leased.
	Hold
	Bounce
	Remove
	Retry

	// What its sender asked for while it was leased: to remove it.
	Cancel

	// Why it is ending, from when it is put on that list until it is settled: leased for the report
	// and, when that failed, while it waits for another try.
	Expiring
	Bouncing

	// What an operator asked for while it was leased: to remove it, since another relay has it.
	Transfer

	// It is on its way to another relay, which may have it by now: it goes, or comes back as it was. In memory only.
	Leaving
	LeavingHeld // likewise, and it was held

	// It is to leave for another relay: no longer leased it waits, where it would be due. In memory only.
	Recall
)

// Asks reports whether the action is what somebody has asked for, or why an entry is ending.
func (a Action) Asks() bool { return a != Nothing && a != Recall }

// Removes reports whether the entry goes, without a report: when it is no longer leased, or perhaps as it leaves.
func (a Action) Removes() bool { return a == Remove || a == Cancel || a == Transfer || a.Leaves() }

// Leaves reports whether the entry is on its way to another relay.
func (a Action) Leaves() bool { return a == Leaving || a == LeavingHeld }

// Ends reports whether the action is why an entry is ending.
func (a Action) Ends() bool { return a == Expiring || a == Bouncing }

// Loc says where a record lies: the handle of its segment and its place there. Zero is nowhere.
// It has 40 bits: 17 for the handle, 23 for the place in units of 16 octets.
type Loc uint64

const (
	locOffBits = 23
	// MaxSegments is the number of handles that a Loc can tell apart; 0 is not one.
	MaxSegments = 1 << 17
	// MaxOffset is the last place at which a record may begin, in octets.
	MaxOffset = (1<<locOffBits - 1) << 4
)

// LocOf makes a Loc. The offset must be a multiple of 16 up to MaxOffset.
func LocOf(segment uint32, offset int64) Loc {
	return Loc(segment)<<locOffBits | Loc(offset>>4)
}

// Segment is the handle of the segment.
func (l Loc) Segment() uint32 { return uint32(l >> locOffBits) }

// Offset is the place in the segment, in octets.
func (l Loc) Offset() int64 { return int64(l&(1<<locOffBits-1)) << 4 }

// Entry is one recipient of one message.
type Entry struct {
	ID         uint64
	next, prev Slot   // neighbours on a list; None when on none
	Due        uint32 // seconds since 1970; when it is, or was, to be tried
	Key        uint32 // what it waits for, or last waited for; 0 before anybody has looked at it
	dataLo     uint32
	noteLo     uint32
	Rcpt       uint16 // index in the message's recipients
	tries      uint16 // tier 3, action 1, attempts 12
	dataHi     uint8
	noteHi     uint8
	bits       uint8 // state 3, action 3 more, warned 1, warning 1
	Size       uint8 // of the message's record, as SizeClass has it
}

const (
	bitsState   = 0x07
	bitsAction  = 0x38
	bitsWarned  = 0x40
	bitsWarning = 0x80
)

const (
	attemptBits = 12
	// MaxAttempts is the most that an entry counts.
	MaxAttempts = 1<<attemptBits - 1

	tierShift   = attemptBits + 1
	triesAction = 1 << attemptBits // the highest of the action's four bits
)

// Attempts is how many there were so far, MaxAttempts at most.
func (e *Entry) Attempts() uint16 { return e.tries & MaxAttempts }

// SetAttempts notes how many there were so far.
func (e *Entry) SetAttempts(n uint16) { e.tries = e.tries&^MaxAttempts | min(n, MaxAttempts) }

// Tier is the message's, 0 to envelope.TierCount-1.
func (e *Entry) Tier() uint8 { return uint8(e.tries >> tierShift) }

// SetTier notes the message's tier.
func (e *Entry) SetTier(tier uint8) {
	e.tries = e.tries&(1<<tierShift-1) | uint16(envelope.TierOf(tier))<<tierShift
}

// State is what the entry is doing.
func (e *Entry) State() State { return State(e.bits & bitsState) }

// Action is what is to be done when it is no longer leased, or why it is ending.
func (e *Entry) Action() Action {
	return Action(e.bits&bitsAction>>3 | uint8(e.tries&triesAction>>(attemptBits-3)))
}

// SetAction notes what is to be done.
func (e *Entry) SetAction(a Action) {
	e.bits = e.bits&^bitsAction | uint8(a)<<3&bitsAction
	e.tries = e.tries&^triesAction | uint16(a)<<(attemptBits-3)&triesAction
}

// Warned reports whether the sender was notified of the delay.
func (e *Entry) Warned() bool { return e.bits&bitsWarned != 0 }

// SetWarned notes whether the sender was notified of the delay.
func (e *Entry) SetWarned(on bool) { e.setBit(bitsWarned, on) }

// Warning reports whether the sender is being notified just now.
func (e *Entry) Warning() bool { return e.bits&bitsWarning != 0 }

// SetWarning notes whether the sender is being notified just now.
func (e *Entry) SetWarning(on bool) { e.setBit(bitsWarning, on) }

func (e *Entry) setBit(bit uint8, on bool) {
	if on {
		e.bits |= bit
	} else {
		e.bits &^= bit
	}
}

// Data is where the message lies.
func (e *Entry) Data() Loc { return Loc(e.dataHi)<<32 | Loc(e.dataLo) }

// SetData notes where the message lies.
func (e *Entry) SetData(l Loc) { e.dataLo, e.dataHi = uint32(l), uint8(l>>32) }

// Note is where the record with the last reply lies; zero when there was no reply.
func (e *Entry) Note() Loc { return Loc(e.noteHi)<<32 | Loc(e.noteLo) }

// SetNote notes where the record with the last reply lies.
func (e *Entry) SetNote(l Loc) { e.noteLo, e.noteHi = uint32(l), uint8(l>>32) }

// SizeClass squeezes a size in octets into one octet: four significant bits and an exponent, so
// that Octets gives it back up to an eighth too large.
func SizeClass(n int64) uint8 {
	u := uint64(max(n, 0)+7) >> 3
	if u <= 8 {
		return 0
	}
	exp := bits.Len64(u-1) - 4
	return uint8(min(exp<<3+int((u-1)>>exp)+1-8, 255))
}

// Octets is the size that a class stands for: 64 at least.
func Octets(class uint8) int64 {
	exp, mant := class>>3, int64(class&7)
	return (8 + mant) << exp << 3
}
