// Package delivery carries jobs to hosts: it decides which connection takes which message, opens and
// closes connections, and gives back what the hosts said about each recipient. It knows no disk.
//
// In the order of use: [New] makes a [Scheduler]; Reserve takes space for a [Job]; Submit hands it over, and
// its Done gets a [Result] for each recipient; Drain lets what is under way end; Close ends all.
//
// The algorithm is Tony Finch's of 2007; docs/delivery.md has its only pseudo-code.
// In the code: a lane (lane.go) is the mail from one source to one site and asks decide for
// the message whose turn it is (waitlist.go); the steps (steps.go) are functions of the
// picture that package destdb keeps; a connection (connection.go) is one SMTP session from the
// decision to open it to its end; what comes back is in settle.go; places.go says which gives way to
// which; budget.go, slow.go, backoff.go, drain.go and divided.go are what holds mail back; reload.go
// has what is there already follow other settings.
//
// One lock, Scheduler.mu, guards all decisions: limits on hosts, sources, providers and the relay as a
// whole cut across sites, so that owners of single sites would have to agree with each other on every
// connection. It is held for microseconds, and never while anything is read or written.
//
// Long-lived goroutines:
//   - the clock (clock.go), one: wakes lanes at their time, keeps house once a second, writes destdb
//     behind, calls Done for jobs that never met a connection, and OnSpace. Close ends it and waits.
//   - establish (connection.go), one for each connection while it is being opened: dials and
//     shakes hands. Its context ends it, at its deadline or by Close, which waits.
//   - the two of each smtpclient.Conn; they call the scheduler by Done and Closed. Close cuts the
//     connection and waits.
package delivery
