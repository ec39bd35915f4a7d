// Package api is the relay's interface for its operator: HTTP and JSON on a unix socket, the
// server and the client of it, and the words that both use. It knows no queue and no relay: the
// server is given small interfaces (Queue, Log, Relay, Destinations, Warmups,
// Suppressions, Tracer), and package mta supplies them.
//
// In reading order: types.go has what is asked and answered, server.go the interfaces and the
// life of the server, routes.go what is behind each path, client.go the other side. What is asked
// about destinations has its words, routes and client together in a file for each:
// destinations.go, explanation.go, warmup.go, suppress.go, conversation.go. openapi.json
// describes it all to other programs; a test holds it to the routes and the types.
//
// Goroutines: Server.Serve accepts connections on its caller's goroutine, and net/http has one
// for each connection. Server.Shutdown ends them, and waits for them as long as its context
// allows.
package api
