package flowcontrol

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func PriorityLevelStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultPriorityLevel)
	s.ValidateCreate = strategy.Checks(validatePriorityLevel)
	s.ValidateUpdate = strategy.ChecksBoth(validatePriorityLevelUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validatePriorityLevelUpdate)
	s.KeepAllMetadataInStatus()
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), priorityLevelColumns, priorityLevelRow)
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if l := p.Spec.Limited; l != nil {
		strategy.SetPointer(&l.NominalConcurrencyShares, 30)
		strategy.SetPointer(&l.LendablePercent, 0)
		if q := l.LimitResponse.Queuing; q != nil {
			strategy.SetDefault(&q.Queues, 64)
			strategy.SetDefault(&q.HandSize, 8)
			strategy.SetDefault(&q.QueueLengthLimit, 50)
		}
	}
	if e := p.Spec.Exempt; e != nil {
		strategy.SetPointer(&e.NominalConcurrencyShares, 0)
		strategy.SetPointer(&e.LendablePercent, 0)
	}
}

func validatePriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if (p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(at.Child("type"), p.Spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch p.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if p.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(at.Child("limited"), "must be nil if the type is not Limited"))
		}
		if e := p.Spec.Exempt; e != nil {
			errs = append(errs, validateShares(e.NominalConcurrencyShares, e.LendablePercent, at.Child("exempt"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if p.Spec.Exempt != nil {
			errs = append(errs, field.Forbidden(at.Child("exempt"), "must be nil if the type is Limited"))
		}
		if p.Spec.Limited == nil {
			errs = append(errs, field.Required(at.Child("limited"), "must not be empty when type is Limited"))
		} else {
			errs = append(errs, validateLimited(p.Spec.Limited, at.Child("limited"))...)
		}
	case "":
		errs = append(errs, field.Required(at.Child("type"), ""))
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), p.Spec.Type, []flowcontrolv1.PriorityLevelEnablement{
			flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	return append(errs, validateConditionTypes(p.Status.Conditions,
		func(c *flowcontrolv1.PriorityLevelConfigurationCondition) flowcontrolv1.PriorityLevelConfigurationConditionType {
			return c.Type
		})...)
}

func validatePriorityLevelUpdate(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return validatePriorityLevel(p)
}

func validateShares(shares, lendable *int32, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if shares != nil && *shares < 0 {
		errs = append(errs, field.Invalid(at.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer"))
	}
	if lendable != nil && (*lendable < 0 || *lendable > 100) {
		errs = append(errs, field.Invalid(at.Child("lendablePercent"), *lendable, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path) field.ErrorList {
	errs := validateShares(l.NominalConcurrencyShares, l.LendablePercent, at)
	if l.BorrowingLimitPercent != nil && *l.BorrowingLimitPercent < 0 {
		errs = append(errs, field.Invalid(at.Child("borrowingLimitPercent"), *l.BorrowingLimitPercent, "if specified, must be a non-negative integer"))
	}
	response := at.Child("limitResponse")
	switch queuing := l.LimitResponse.Queuing; l.LimitResponse.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if queuing != nil {
			errs = append(errs, field.Forbidden(response.Child("queuing"), "must be nil if limited.limitResponse.type is not Limited"))
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if queuing == nil {
			errs = append(errs, field.Required(response.Child("queuing"), "must not be empty if limited.limitResponse.type is Limited"))
		} else {
			errs = append(errs, validateQueuing(queuing, response.Child("queuing"))...)
		}
	case "":
		errs = append(errs, field.Required(response.Child("type"), ""))
	default:
		errs = append(errs, field.NotSupported(response.Child("type"), l.LimitResponse.Type, []flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}))
	}
	return errs
}

// validateQueuing checks that shuffle sharding can deal a flow's hand of queues: the number of
// distinct hands must fit into 60 bits.
func validateQueuing(q *flowcontrolv1.QueuingConfiguration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(at.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	if q.Queues <= 0 {
		errs = append(errs, field.Invalid(at.Child("queues"), q.Queues, "must be positive"))
	} else if q.Queues > maxQueues {
		errs = append(errs, field.Invalid(at.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	hand := at.Child("handSize")
	switch {
	case q.HandSize <= 0:
		errs = append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	case shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits)))
	}
	return errs
}

var priorityLevelColumns = columns.Define("Name", "Type@spec.type", "NominalConcurrencyShares@spec.limited.nominalConcurrencyShares", "Queues@spec.limited.limitResponse.queuing.queues",
	"HandSize@spec.limited.limitResponse.queuing.handSize", "QueueLengthLimit@spec.limited.limitResponse.queuing.queueLengthLimit", "Age")

func priorityLevelRow(p *flowcontrolv1.PriorityLevelConfiguration, now metav1.Time) []any {
	var shares, queues, hand, length any = columns.None, columns.None, columns.None, columns.None
	if l := p.Spec.Limited; l != nil {
		shares = int64(validate.Deref(l.NominalConcurrencyShares))
		if q := l.LimitResponse.Queuing; q != nil {
			queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
		}
	}
	return []any{p.Name, string(p.Spec.Type), shares, queues, hand, length, columns.AgeOf(p, now)}
}
