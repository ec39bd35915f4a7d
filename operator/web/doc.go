// Package web serves the console: pages for a browser that show the relay and steer it. It asks the
// relay by a api.Client and knows nothing else of it, so that the pages are the same in the relay
// (the console block of the configuration) and on the operator's side of its socket ('mta console').
//
// # How to add a page
//
// A page is a Go file, a template and one line in routes.go:
//
//	// in a file named after the page
//	func words(r *request) (any, error) {            // asks the relay, returns the template's data
//		return r.relay.Words(r.ctx, r.get("like"))
//	}
//
//	{{/* templates/words.html */}}
//	{{define "live"}}                                 {{/* what is refreshed */}}
//	<ul>{{range .Words}}<li>{{cut 60 .Text}}: {{count .Uses}}{{end}}</ul>
//	{{end}}
//
//	// routes.go
//	{method: "GET", path: "/words", role: api.OpWords.Role(), title: "Words", menu: true,
//		params: []string{"like"}, page: &page{"words.html", words, often}},
//
// The page of a listing is a lister (lists.go): its table, filter and paging come from package listing and the type of
// the filter.
//
// The base does the rest: the session and the role, unknown parameters (400), errors with the relay's
// words and remedy, the banner and the age of what is shown when the relay is gone, the layout, the
// refresh. What a page shows is computed once for all viewers of the same role and URL, so a page must not
// depend on who looks at it. A template may define "top", too: it stands above "live" and is not
// refreshed (filters belong there).
//
// Text from strangers needs no care: templates escape HTML, and control characters and marks of
// direction are made visible in all that is written (reveal in render.go). Cut what may be long: {{cut 80 .Text}}.
// The functions of templates are in functions.go, the parts that pages share in templates/parts.html:
//
//	{{template "state" .State}}   a state of a message as text
//	{{template "paging" .Paging}} the way to the next page of a list (request.paging)
//	{{template "plot" .Plot}}     a plot, with its sentence and its table (plot.go)
//	{{template "empty" "..."}}    what would stand here
//	{{template "button" (act "/queue/hold" "id" .ID)}} the button of an action, for those who may
//
// # How to add an action
//
//	{method: "POST", path: "/sites/resume", role: api.OpResume.Role(), title: "Resume",
//		params: paramsOf(new(api.Resume)),
//		action: &action{do: changes("suspension", asks(api.OpResume), nil),
//			help: "All suspensions of the site end."}},
//
// The base counts by a dry run, asks for confirmation and a reason, acts, and asks again when the count
// has changed meanwhile. An action that needs more than the buttons of a list have, as the way of rerouted mail,
// gets a form (action.form), which is shown first.
//
// # What runs
//
// A Server starts no goroutines; those of net/http serve it. It keeps sessions and the newest answers in
// memory, both bounded.
package web
