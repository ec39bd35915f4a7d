package settings

import "reflect"

// Origins gives, by setting, the block that a value was taken from; none for a default.
type Origins map[string]*Block

// Lay copies the settings that b has from the struct from to the struct to; both are pointers to the
// same type. b is the block that from belongs to.
func (o Origins) Lay(to, from any, b *Block) {
	o.lay(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem(), b, "")
}

func (o Origins) lay(to, from reflect.Value, b *Block, prefix string) {
	for f := range Fields(from) {
		target, _ := named(to, f.Name)
		switch name := prefix + f.Name; {
		case f.Kind == Single:
			o.lay(target.Value, f.Value, b, name+".")
		case b.Set(name), b.kept[name]:
			target.Value.Set(f.Value)
			o[name] = b
		}
	}
}

// Of gives the place where a setting was made, as Block.Origin does.
func (o Origins) Of(setting string) string {
	if b := o[setting]; b != nil {
		return b.Origin(setting)
	}
	return "default"
}

// Inherit gives the block that v points to those settings of a preset that it does not have.
func Inherit(v, preset any) {
	to, b := reflect.ValueOf(v).Elem(), BlockOf(reflect.ValueOf(v).Elem())
	have := BlockOf(reflect.ValueOf(preset).Elem())
	from := make(map[string]Field)
	for f := range leaves(reflect.ValueOf(preset).Elem(), "") {
		from[f.Name] = f
	}
	for f := range leaves(to, "") {
		if have.Set(f.Name) && !b.Set(f.Name) {
			f.Value.Set(from[f.Name].Value)
			b.note(f.Name, have.at[f.Name])
		}
	}
}

// Names lists the settings of the struct that v points to, those of inner blocks as "timeouts.connect".
func Names(v any) (all []string) {
	for f := range leaves(reflect.ValueOf(v).Elem(), "") {
		all = append(all, f.Name)
	}
	return all
}

// Value gives a setting of the struct that v points to as text, "" for one that Names does not list.
func Value(v any, setting string) string {
	for f := range leaves(reflect.ValueOf(v).Elem(), "") {
		if f.Name == setting {
			return show(f.Value)
		}
	}
	return ""
}
