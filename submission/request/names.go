package request

import (
	"maps"
	"slices"
)

// Names are the names of fields, in the order in which documents list them.
type Names struct{ Request, Recipient, Attachment, Parameters []string }

// FieldNames lists the fields of a request, of an element of recipients and of an attachment, and the
// parameters of a query: what describes them is compared with it.
func FieldNames() Names {
	return Names{namesOf(requestFields), namesOf(personalFields), namesOf(attachmentFields),
		slices.Sorted(maps.Keys(parameters))}
}

func namesOf[T any](all []field[T]) (names []string) {
	for _, f := range all {
		names = append(names, f.name)
	}
	return names
}
