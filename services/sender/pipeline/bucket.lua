-- One business number's bucket: the campaigns' clock, when live messages left, the pace that Meta
-- leaves, short pauses.
-- All times are Redis' own, in seconds. A slot is a time at which one message may leave; a clock
-- is the next free slot. The form is GCRA: nothing is stored but the clock. Live messages, a few,
-- have their share of each second instead, and beyond it the campaigns' next slot.
--
-- KEYS[1]  hash: campaign (clock), factor, factor_at, cut_at, paused_until; for look: many
-- KEYS[2]  list: the slots of the last live messages, newest first
-- ARGV     operation, then its numbers; answers are text, since Lua numbers are cut to integers

local SPREAD = 1.01        -- spacing is 1.01/rate, so that no closed second holds more than rate
local HORIZON = 0.075      -- campaigns may book while their clock is at most this far ahead
local LEAD = 0.010         -- an idle clock starts a little ahead: a slot in the past is void
local CUT, CLIMB = 0.85, 0.005
local LEAST = 0.01         -- the pace never falls below a hundredth of the configured rate
local PAUSE = 1.0
local LONGEST = 1000       -- above the longest pause
local FARTHEST = 30        -- above the longest wait of a live message
local KEEP = 3600

local key = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6

local function field(name)
  return tonumber(redis.call('HGET', key, name) or '0') or 0
end

local function text(number)
  return string.format('%.6f', number)
end

local function save(...)
  redis.call('HSET', key, ...)
  redis.call('EXPIRE', key, KEEP)
end

local function factor()
  local since = field('factor_at')
  if since == 0 then return 1 end
  local climbed = field('factor') + math.max(0, now - since) * CLIMB
  return math.max(LEAST, math.min(1, climbed))
end

-- A moment that this script has set. One that is further away than any pause was set under another
-- time: Redis' clock has been put back since.
local function moment(name)
  local at = field(name)
  return at <= now + LONGEST and at or 0
end

-- A clock, never in the past. One that is further ahead than its slots explain was set under
-- another time or rate: it starts anew.
local function clock(name, spacing)
  local at = field(name)
  if at > now + 10 + 50 * spacing then at = 0 end
  return math.max(at, now + LEAD)
end

local operation = ARGV[1]

if operation == 'look' then
  local answer = {text(now)}
  for _, one in ipairs(KEYS) do
    key = one
    local paused_until = moment('paused_until')
    local throttled = paused_until == moment('cut_at')
    table.insert(answer, text(factor()))
    table.insert(answer, text(math.max(0, paused_until - now)))
    table.insert(answer, throttled and '1' or '0')
  end
  return answer
end

if operation == 'pause' then
  local until_ = math.max(moment('paused_until'), now + tonumber(ARGV[2]))
  save('paused_until', text(until_))
  if tonumber(ARGV[3]) == 1 then save('cut_at', text(until_)) end
  return {text(now), text(until_ - now)}
end

if operation == 'throttle' then
  local slot = tonumber(ARGV[2])
  if slot <= moment('cut_at') then return {text(now), '0', text(factor())} end
  local lower = math.max(LEAST, factor() * CUT)
  local until_ = math.max(moment('paused_until'), now + PAUSE)
  -- What was booked before the pause may still leave within it: all of that is of the old pace.
  save('factor', text(lower), 'factor_at', text(now), 'cut_at', text(until_),
       'paused_until', text(until_))
  return {text(now), '1', text(lower)}
end

-- book and live: number of slots, rate, share of the rate for this clock, share of the other
local count, rate = tonumber(ARGV[2]), tonumber(ARGV[3])
local headroom = tonumber(ARGV[4])
local pace = factor()
local paused = moment('paused_until') - now
if paused > 0 then return {text(now), '0', text(paused), '0', text(pace)} end

-- Whole messages for each clock: 7.5 and 2.5 a second would be up to 8 and 3 in one of them.
local function spacing(share)
  local part = rate * share
  if part > 1 then part = math.floor(part + 1e-9) end
  return SPREAD / (part * pace)
end

local campaign_spacing = spacing(1 - headroom)

-- When a live message may leave of its own share: at once, unless as many as the share allows have
-- left within the last second. Even spacing would keep one in five waiting, and a second holds no
-- more this way either. One further ahead than anybody waits was set under another time.
local function own_slot(share)
  local part = rate * headroom * share
  if part == 0 then return math.huge end
  local most = math.max(1, math.floor(part + 1e-9))
  local left = tonumber(redis.call('LINDEX', KEYS[2], most - 1) or '0')
  if left > now + FARTHEST then return now end
  return math.max(now, left + SPREAD * math.max(1, 1 / part))
end

if operation == 'live' then
  local own, next_one = own_slot(pace), clock('campaign', campaign_spacing)
  local slot = math.min(own, next_one)
  if slot - now > tonumber(ARGV[5]) then
    return {text(now), '0', text(slot - now), '0', text(pace)}
  end
  if own <= next_one then
    redis.call('LPUSH', KEYS[2], text(slot))
    redis.call('LTRIM', KEYS[2], 0, math.floor(rate * headroom))
    redis.call('EXPIRE', KEYS[2], KEEP)
  else
    save('campaign', text(next_one + campaign_spacing))
  end
  return {text(now), '1', text(slot - now), '0', text(pace)}
end

local first = clock('campaign', campaign_spacing)
if first - now > HORIZON then
  return {text(now), '0', text(first - now - HORIZON), '0', text(pace)}
end
save('campaign', text(first + count * campaign_spacing))
return {text(now), text(count), text(first - now), text(campaign_spacing), text(pace)}
