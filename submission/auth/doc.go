// Package auth finds out who a client is: SASL mechanisms (RFC 4422) over the users file, client
// certificates, a memory of verified passwords, and the slowing down of those who guess. It knows no
// SMTP; package submission has the AUTH command (RFC 4954).
//
// What a login goes through:
//
//	mechanism.go  PLAIN, LOGIN, SCRAM-SHA-256(-PLUS), EXTERNAL
//	service.go    the users file in force, and the order of the steps
//	known.go      passwords that were verified minutes ago, and networks that users come from
//	known_file.go those networks, over restarts
//	chances.go    the first attempts from anywhere, which are looked at before their turn
//	guesses.go    one guess at a time from a network and at a user, ever more slowly
//	slots.go      how many passwords are hashed at once
//	renew.go      hashes that are made anew
//
// A wrong password and a user who does not exist are told apart neither by words nor by time: an
// unknown name has the hash of some user checked, the result thrown away, and every failure is
// answered at a whole second after the attempt began.
//
// Goroutines: a timer's, for a second after a hash was made anew and a minute after a login from a new network; Close
// ends both.
package auth
