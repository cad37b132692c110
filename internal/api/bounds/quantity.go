package bounds

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// MaxQuantityDigits are the most digits of a quantity's number, before and behind the point. Quantities hold 18 of them exactly
	// and more of them slowly.
	MaxQuantityDigits = 1000
	// MaxQuantityExponent is the largest exponent of a quantity such as 1e3, and less its sign the smallest.
	MaxQuantityExponent = 1000

	shownText = 40 // characters of a refused text that an error shows
)

// Quantity tells why the text of a quantity is not worth reading. Whether it is a quantity at all is for others to say.
func Quantity(text string) error {
	number, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		number, exponent = text[:i], text[i+1:]
		if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
			exponent = exponent[1:]
		}
		exponent = strings.TrimLeft(exponent, "0")
	}
	digits := 0
	for i := range len(number) {
		if isDigit(number[i]) {
			digits++
		}
	}
	if digits > MaxQuantityDigits {
		return fmt.Errorf("%s has %d digits: a quantity has at most %d", shorten(text), digits, MaxQuantityDigits)
	}
	value := 0
	for i := 0; i < len(exponent) && isDigit(exponent[i]); i++ {
		if value = value*10 + int(exponent[i]-'0'); value > MaxQuantityExponent {
			return fmt.Errorf("%s has an exponent that is not between -%d and %d", shorten(text), MaxQuantityExponent, MaxQuantityExponent)
		}
	}
	return nil
}

func shorten(text string) string {
	if len(text) > shownText {
		return fmt.Sprintf("%q...", text[:shownText])
	}
	return fmt.Sprintf("%q", text)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// suspect tells whether a document has anything in it that Quantity could refuse: four digits in a row behind an e (zeros or not), or as
// many digits as are too many, points left out. Almost no document has, so this is all that most of them cost.
func suspect[T string | []byte](data T) bool {
	const step = 4 // as many digits in a row can not be between two looks
	for i := step - 1; i < len(data); i += step {
		if !isDigit(data[i]) {
			continue
		}
		from, to := i, i+1
		for from > 0 && (isDigit(data[from-1]) || data[from-1] == '.') {
			from--
		}
		for to < len(data) && (isDigit(data[to]) || data[to] == '.') {
			to++
		}
		if to-from > MaxQuantityDigits {
			return true
		}
		if before := from - 1; to-from >= step && before >= 0 {
			if (data[before] == '+' || data[before] == '-') && before > 0 {
				before--
			}
			if data[before] == 'e' || data[before] == 'E' {
				return true
			}
		}
		i = to
	}
	return false
}

var quantityType = reflect.TypeFor[resource.Quantity]()

var holders sync.Map // reflect.Type to bool: whether a quantity is somewhere in it

// holds tells whether values of the type may have quantities in them.
func holds(t reflect.Type) bool {
	if known, ok := holders.Load(t); ok {
		return known.(bool)
	}
	found := reaches(t, func(t reflect.Type) bool { return t == quantityType }, map[reflect.Type]bool{})
	holders.Store(t, found)
	return found
}

// reaches tells whether a type that is wanted is somewhere in t.
func reaches(t reflect.Type, wanted func(reflect.Type) bool, seen map[reflect.Type]bool) bool {
	if wanted(t) {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return reaches(t.Elem(), wanted, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if reaches(t.Field(i).Type, wanted, seen) {
				return true
			}
		}
	}
	return false
}

// plain is the type behind pointers.
func plain(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// member is the type of a struct's field by its JSON name, fields of inlined structs included; nil when no quantity can be in it. Some of those who
// read documents do not look at the case of names.
func member(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag != "" && strings.EqualFold(tag, name):
			if holds(f.Type) {
				return f.Type
			}
			return nil
		case tag == "" && plain(f.Type).Kind() == reflect.Struct && holds(f.Type):
			if found := member(plain(f.Type), name); found != nil {
				return found
			}
		}
	}
	return nil
}
