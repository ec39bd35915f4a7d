package http

import (
	_ "embed"
	"net/http"
	"strconv"
)

// openAPI describes all routes (OpenAPI 3.1). 'make generate' makes it of testdata/openapi.json and the types of
// answers.
//
//go:embed openapi.json
var openAPI []byte

func (s *Server) documentRoutes() []Route {
	return []Route{{Method: http.MethodGet, Pattern: "/openapi.json", Open: true, Handle: getDocument}}
}

func getDocument(c *Call) error {
	h := c.Writer.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(openAPI)))
	h.Set("Cache-Control", "max-age=3600")
	h.Set("Access-Control-Allow-Origin", "*") // for viewers of such documents; it has no secret
	_, err := c.Writer.Write(openAPI)
	c.gone(err)
	return nil
}
