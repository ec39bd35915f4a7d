// Package fairqueue serves first who came first, without remembering anybody: each refusal carries
// a signed token with the time of the first attempt, and who brings it back is judged by that time.
//
// After Shopify's stateless fair queueing (2022). A submission passes two gates. The first is a
// threshold on the time of the first attempt ("now serving"), computed from the times that have
// been seen lately: it lets through as many as there is room for, the oldest first. The second is a
// leaky bucket that keeps the limit whatever the first lets through. Nodes do not talk to each
// other; a node that restarts learns the threshold again within seconds.
//
// [Signer] makes and checks tokens, and [Memory] stands in for them where a protocol has none. The
// relay uses these with an admission control that measures how many there is room for. [Gate] has the two
// gates as published, for a limit that is known; the relay does not use it. Nothing here reads a clock or
// starts a goroutine.
package fairqueue
