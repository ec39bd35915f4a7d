// Package admission decides which submissions to refuse when more is offered than can be kept. It
// knows neither SMTP nor HTTP nor the queue: its caller gives it priorities, holds a slot while it
// makes a message durable, and turns refusals into replies.
//
// After Uber's Cinnamon (2023), it has two parts:
//
//   - [Controller.Admit], on the way of each submission: one load and one comparison with the
//     threshold.
//   - [Controller.Calibrate], every [Period]: a law computes the share to refuse from what was
//     offered and served and how busy the slots were; the last 1,000 priorities turn the share into
//     a threshold, within a tier with the present rates of its tenants ([Fair.Within]). The parts
//     of one level that the threshold cuts are refused in proportion, so that a single tenant at
//     one priority is shed by a share, and not as a whole.
//
// Whoever was admitted takes a slot ([Ticket.Wait]) before it uses what is scarce. The slots are
// few; a [Tuner] finds how many. Those who wait for one are ordered by priority, and the tenants of
// a level take turns; they are bounded in number and in time.
//
// Clients are served in the order of their first attempts, without remembering them (after Shopify's stateless fair
// queueing, 2022): a [Signer] makes and checks tokens with the time of the first attempt, and a [Memory] stands in for
// them where a protocol has none.
//
// The package starts no goroutine; its clock is given. The caller calls Calibrate.
package admission
