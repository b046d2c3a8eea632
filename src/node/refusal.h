// A verdict of admission in words for the client: what was forecast, what it was held against, and
// when to come back. Threads: any.
#pragma once

#include "plan/admission.h"
#include "request/frontend.h"

namespace tandem {

// Needs a refusal.
Refusal describe_refusal(const AdmissionAsk& ask, const AdmissionVerdict& verdict);

}  // namespace tandem
