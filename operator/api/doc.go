// Package api is the relay's interface for its operator: HTTP and JSON on a unix socket, the
// server and the client of it, and the words that both use. It knows no queue and no relay: the
// server is given small interfaces (Queue, Log, Relay, Destinations, Warmups,
// Suppressions, Tracer), and package mta supplies them.
//
// In reading order: operations.go is the table of all that can be asked, a row for each; operation.go has both sides of
// a row, the answer and the question; params.go reads and writes parameters; change.go puts changes on record; types.go
// and a file for each topic have the types of requests and answers; server.go and client.go have the lives of both.
// openapi.json describes it all to other programs; a test holds it to the table and the types.
//
// Goroutines: Server.Serve accepts connections on its caller's goroutine, and net/http has one
// for each connection. Server.Shutdown ends them, and waits for them as long as its context
// allows.
package api
