package http

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"example.org/mta/internal/openapi"
)

var update = flag.Bool("update", false, "write openapi.json")

// TestDocumentIsMadeFromTheCode: openapi.json is testdata/openapi.json, which has the routes with their examples and what
// is read, with a schema for each type that is answered. 'make generate' writes it.
func TestDocumentIsMadeFromTheCode(t *testing.T) {
	var document openapi.Object
	byHand, err := os.ReadFile("testdata/openapi.json")
	if err == nil {
		err = json.Unmarshal(byHand, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	schemas := document["components"].(openapi.Object)["schemas"].(openapi.Object)
	for name, schema := range answerSchemas(t) {
		if schemas[name] != nil {
			t.Errorf("testdata/openapi.json has the schema %s, which is made from its type", name)
		}
		schemas[name] = schema
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.json", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(b.Bytes(), openAPI) {
		t.Error("openapi.json is not what the code says: make generate")
	}
}

// schemaNames are those of types that have another name in the document.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[Message]():             "MessageState",
	reflect.TypeFor[MessageRecipient]():    "RecipientState",
	reflect.TypeFor[fault]():               "Fault",
	reflect.TypeFor[suppressionPage]():     "SuppressionPage",
	reflect.TypeFor[suppressionsRemoved](): "SuppressionsRemoved",
	reflect.TypeFor[MessagePage]():         "MessagePage",
	reflect.TypeFor[messageCancelled]():    "MessageCancelled",
	reflect.TypeFor[messagesCancelled]():   "MessagesCancelled",
}

// answerSchemas makes the schemas of answers.
func answerSchemas(t *testing.T) openapi.Object {
	s := openapi.Schemas{Made: openapi.Object{}, Name: func(t reflect.Type) string {
		if name, ok := schemaNames[t]; ok {
			return name
		}
		return t.Name()
	}, Special: func(t reflect.Type) openapi.Object {
		if t == reflect.TypeFor[MessageStatus]() {
			return openapi.Ref("State")
		}
		return nil
	}}
	if err := s.ReadComments(reflect.TypeFor[Sent]().PkgPath(), "."); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []any{
		Sent{}, EventPage{}, suppressionPage{}, SuppressionsAdded{}, suppressionsRemoved{}, MessagePage{}, messageCancelled{},
		messagesCancelled{}, fault{},
	} {
		s.Of(reflect.TypeOf(answer))
	}
	property := func(schema, name string) openapi.Object {
		return s.Made[schema].(openapi.Object)["properties"].(openapi.Object)[name].(openapi.Object)
	}
	for _, schema := range []string{"SentMessage", "SentRecipient"} {
		s.Made[schema].(openapi.Object)["properties"].(openapi.Object)["status"] = openapi.Ref("Status")
	}
	property("EventPage", "events")["items"] = openapi.Ref("Event")
	s.Made["State"] = openapi.Object{"type": "string", "enum": MessageStatuses, "description": "scheduled: waits for send_at; " +
		"queued: for its first attempt; deferred: failed for now; held: by an operator; sending: an attempt is under way. Final: " +
		"delivered, bounced, expired, removed (by an operator), moved (to another relay, which goes on with it), cancelled, unknown " +
		"(it has left, and the log lacks how). mixed: the recipients of the message differ."}
	return s.Made
}
