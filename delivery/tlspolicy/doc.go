// Package tlspolicy decides how the connection that carries a message must be protected, and checks
// that it is.
//
// In the order of use: [Decide] combines what the configuration says of a destination, what the
// recipient's domain publishes (MTA-STS, RFC 8461) and what the message itself asks for (RFC 8689) into
// a [Demand]; mail with equal demands can share connections. Before each connection, [Policy.Terms] looks
// up what the host publishes (DANE, RFC 7672) and gives the [Terms], which verify the handshake and keep
// the [Facts]. The [Result] of each attempt goes to a [Recorder], for reports (RFC 8460).
//
// The package starts no goroutines. [DANE] looks TLSA records up; subpackage sts is the library for MTA-STS.
package tlspolicy
