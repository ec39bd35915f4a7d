// Package warmup keeps the volume sent from a new IP address inside a plan: never above a cap of
// any hour, day or provider, smooth within the hour, and growing only while the mail is well
// received. docs/warmup.md has the law in words, with measurements.
//
// Volumes are kept per (IP, provider). A provider is the operator of the mail exchangers, not
// the recipient's domain: all of Google Workspace is one.
//
// The parts, in the order of use:
//
//   - [Plan] and [Stage]: what may be sent. Presets has published ones.
//   - [State]: one IP's position in its plan, its ledger, pacer and health. All of it is
//     arithmetic on (state, now, input), without clock, lock or input and output.
//   - [Store]: where states are kept for all nodes, under locks with fencing tokens.
//     Memory and File implement it.
//   - [Controller]: what a relay holds. A message's tokens are charged in the store, durably,
//     before it may take the warming IP; a node keeps a lease of its part of at most two
//     seconds of the plan's pace, so that a crash under-sends by that and nothing over-sends.
//   - [Patience]: which mail waits for tokens, and which takes another IP; for the relay and for package simulate.
//
// The only long-lived goroutine is that of [Controller.Run], when the owner starts it: it talks
// to the store, and ends with its context. Package simulate calls [Controller.Step] itself.
package warmup

// Instant is a moment of the store's clock, in milliseconds. It never goes back. Windows are
// counted from the warm-up's begin, so neither time zones nor daylight saving matter.
type Instant int64

// second is that many of an Instant's units.
const second = 1000
