// Package keys finds out on whose behalf an HTTP client calls: API keys, each of one tenant, with scopes
// and perhaps networks and an end. It knows no HTTP.
//
//	identity.go  scopes, and what a key says about its holder
//	token.go     the secret that a client shows
//	table.go     the keys file
//	change.go    add, rotate, remove: for the command line and the control API
//	book.go      the keys in force, and the check of a token
//	use.go       when each key was used last
//
// A token is 256 random bits. The file has its SHA-256, so a stolen file opens nothing, and a lookup by that
// sum gives nothing away by its time. Slow hashes are for passwords, which can be guessed. A token that is
// unknown, has expired or comes from elsewhere gets the same answer, at a whole second after the request, one
// at a time for each network and ever more slowly.
//
// Goroutines: a timer's, for a moment, a minute after a key was used; Close ends it.
package keys
