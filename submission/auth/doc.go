// Package auth finds out who a client is: SASL mechanisms (RFC 4422) over the users file, client certificates, a memory
// of verified passwords, API keys, and the slowing down of those who guess. It knows no SMTP and no HTTP; package
// submission has the AUTH command (RFC 4954).
//
// What a login goes through:
//
//	mechanism.go  PLAIN, LOGIN, SCRAM-SHA-256(-PLUS), EXTERNAL
//	users_*.go    the users file: names, hashes, senders
//	hash.go       the hashes of passwords
//	service.go    the users file in force, and the order of the steps
//	known.go      passwords that were verified minutes ago, and networks that users come from, over restarts
//	pace.go       one attempt at a time for a key, ever more slowly
//	guesses.go    one guess at a time from a network and at a user, ever more slowly, after the first from anywhere;
//	              how many passwords are hashed at once
//	renew.go      hashes that are made anew
//
// A wrong password and a user who does not exist are told apart neither by words nor by time: an
// unknown name has the hash of some user checked, the result thrown away, and every failure is
// answered at a whole second after the attempt began.
//
// The API keys of a tenant, with scopes and perhaps networks and an end:
//
//	keys_identity.go  scopes, what a key says about its holder, and the secret that a client shows
//	keys_table.go     the keys file
//	keys_change.go    add, rotate, remove: for the command line and the control API
//	keys_book.go      the keys in force, and the check of a token
//	keys_use.go       when each key was used last
//
// A token is 256 random bits. The file has its SHA-256, so a stolen file opens nothing, and a lookup by that sum gives
// nothing away by its time. Slow hashes are for passwords, which can be guessed. A token that is unknown, has expired
// or comes from elsewhere gets the same answer, at a whole second after the request, one at a time for each network and
// ever more slowly.
//
// What the nodes of a cluster share counts before the files: keys_shared.go, users_shared.go, by package shared.
//
// Goroutines: a timer's, for a second after a hash was made anew, a minute after a login from a new network and a
// minute after a key was used; Close ends them.
package auth
