// Package http takes mail and the questions of tenants by HTTP.
//
// server.go has the server, connections.go what bounds its connections, route.go the table of routes,
// and call.go one request on its way through the checks that all routes share: whether a key is in the
// URL, which route it is for, who asks (authenticate.go), from where (client.go), and whether there is
// room (body.go). Each group of routes is a file with a method that returns them. A handler returns a
// [Problem] for what is wrong, which becomes the answer (RFC 9457).
//
// Goroutines: those of net/http, one for each connection and one for each stream of HTTP/2. Shutdown
// ends them and waits.
package http
